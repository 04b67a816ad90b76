"""The compared variants of the nn.Graph benchmark: a callable step(*batch) for each."""

import copy
import importlib.util
import os
import subprocess
import time

import torch
from graph_models import MODELS, OPTIMIZERS

import oneflow as flow

VARIANTS = ("eager", "compile", "compile-step", "aten", "inductor", "jax", "oneflow")
TORCH_COMPILE = ("compile", "compile-step", "compile-reduce", "compile-step-reduce")
FOLDER = os.path.dirname(os.path.abspath(__file__))


def eager_step(model, optimizer, loss_of):
    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def graph_step(model, loss_of, make_optimizer, backend, cudagraph=False, skip=()):
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            if make_optimizer is not None:
                self.add_optimizer(make_optimizer(model.parameters()))
            self.config.set_backend(backend)
            self.config.passes(skip=skip)
            if cudagraph:
                self.config.enable_cudagraph(True)

        def build(self, *batch):
            loss = loss_of(self.m, *batch)
            if make_optimizer is not None:
                loss.backward()
            return loss

    return G()


def torch_step(name, model, loss_of, make_optimizer):
    mode = {"mode": "reduce-overhead"} if name.endswith("reduce") else {}
    compiled = torch.compile(model, **mode) if name.startswith("compile") and "step" not in name else model
    if make_optimizer is None:

        def run(*batch):
            with torch.no_grad():
                return loss_of(compiled, *batch)
    else:
        run = eager_step(compiled, make_optimizer(model.parameters(), fused=True), loss_of)
    return torch.compile(run, **mode) if "step" in name else run


class OneFlowPeer:
    """The original OneFlow's nn.Graph in a separate process. A call runs one step there; `wall` and `cpu` are
    its measured seconds.
    """

    def __init__(self, python, model, optimizer, n):
        spec = importlib.util.find_spec("flowvision")
        extra = [os.path.dirname(spec.submodule_search_locations[0])] if spec else []
        command = [python, os.path.join(FOLDER, "graph_oneflow.py"), model, optimizer, str(n), *extra]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        self._read()

    def _read(self):
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the OneFlow process ended with status {self.process.wait()}")
        return line

    def __call__(self, *batch):
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.wall, self.cpu = map(float, self._read().split())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def available(name, model, oneflow_python=None):
    """Whether the peer exists for the model here."""
    if name == "jax":
        return model in ("tiny", "mlp", "gpt2") and importlib.util.find_spec("jax") is not None
    if name == "oneflow":
        from graph_oneflow import MODELS as has

        return model in has and bool(oneflow_python)
    return True


def variant(name, model_name, base, case, n, oneflow_python=None):
    """step(*batch); `case` is (optimizer name or None for inference)."""
    _, _, loss_of, _, _, _ = MODELS[model_name]
    make_optimizer = OPTIMIZERS[case] if case else None
    if name == "jax":
        import graph_jax

        return graph_jax.make(model_name, case, case is None)
    if name == "oneflow":
        return OneFlowPeer(oneflow_python, model_name, case or "infer", n)
    model = copy.deepcopy(base)
    if name == "aten-ungrouped":  # pointwise operators of forward and backward one after the other
        return graph_step(model, loss_of, make_optimizer, "aten", skip=("in_groups",))
    if name == "aten-mkl":  # products by torch's kernels
        return graph_step(model, loss_of, make_optimizer, "aten", skip=("in_exact_products",))
    if name == "aten-python":  # every operator is called from Python
        return graph_step(model, loss_of, make_optimizer, "aten", skip=("in_runs",))
    if name == "aten-by-operator":  # the update as the optimizer's operators, one after the other
        return graph_step(model, loss_of, make_optimizer, "aten", skip=("in_blocks",))
    if name in ("aten", "inductor", "auto", "inductor-cudagraph", "aten-cudagraph"):
        return graph_step(model, loss_of, make_optimizer, name.split("-")[0], "cudagraph" in name)
    return torch_step(name, model, loss_of, make_optimizer)


def timed(step, batch, sync, kind):
    """Seconds of one call, "wall" or "cpu". OneFlow measures in its own process."""
    clock = time.perf_counter if kind == "wall" else time.process_time
    sync()
    start = clock()
    step(*batch)
    sync()
    taken = clock() - start
    return getattr(step, kind, None) or taken
