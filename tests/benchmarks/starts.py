"""Measure the time to the first training step: cold, and in a second process with warm caches.

    OMP_NUM_THREADS=1 python tests/benchmarks/starts.py  # both models, nn.Graph and torch.compile
    OMP_NUM_THREADS=1 python tests/benchmarks/starts.py --models transformer --turns 5
    OMP_NUM_THREADS=1 python tests/benchmarks/starts.py --variants graph --against OLD
    OMP_NUM_THREADS=1 python tests/benchmarks/starts.py --variants graph,compile,jax

OLD is a folder with another package oneflow. The variant jax trains the transformer, if jax is installed.

Each figure is the CPU time (user and system, child processes included) from the first call of the step to its
result. Modules are imported, and model and optimizer are made before. Each variant has caches of its own,
empty in its first process. The variants run in turns; the warm figure is the median of the turns.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def transformer():
    from torch import nn, randint

    layers = [nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(500, 128), *layers, nn.Linear(128, 500), nn.Flatten(0, 1))
    return model, randint(0, 500, (2, 32)), randint(0, 500, (64,))


def resnet50():
    from flowvision.models import resnet50
    from torch import randint, randn

    return resnet50(num_classes=10), randn(2, 3, 64, 64), randint(0, 10, (2,))


MODELS = {"transformer": transformer, "resnet50": resnet50}


def graph_step(model, optimizer, backend="inductor"):
    import oneflow as flow

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)
            self.config.set_backend(backend)

        def build(self, x, y):
            loss = flow.nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            return loss

    return Step()


def compile_step(model, optimizer):
    import torch

    @torch.compile
    def loss_of(x, y):
        return torch.nn.functional.cross_entropy(model(x), y)

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def jax_step(model, optimizer):
    """Return the step of a GPT of the same size, written for JAX; `model` and `optimizer` are not used."""
    import graph_jax

    step = graph_jax.make("gpt2", "adamw", False)
    return lambda x, y: step(x)


VARIANTS = {"graph": graph_step, "compile": compile_step, "jax": jax_step}


def cpu_seconds():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def first_result(model_name, variant):
    """Print the CPU and wall seconds of the first step of this process."""
    import torch

    if variant == "graph":
        import oneflow  # noqa: F401
    torch.manual_seed(0)
    model, x, y = MODELS[model_name]()
    step = VARIANTS[variant](model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    cpu, wall = cpu_seconds(), time.perf_counter()
    loss = step(x, y).item()
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    print(json.dumps({"cpu": cpu, "wall": wall, "loss": loss}))


def caches_in(folder):
    """Return the environment variables of a process whose caches are in a folder."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "ONEFLOW_CACHE_DIR": f"{folder}/oneflow",
        "XDG_CACHE_HOME": f"{folder}/cache",
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def run(model, variant, folder, package=None):
    environment = {
        **os.environ,
        **caches_in(folder),
        "ONEFLOW_QUIET": "1",
        **({"PYTHONPATH": package} if package else {}),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a second process would translate the sources again
    command = [sys.executable, "-W", "ignore", __file__, "--first", model, variant]
    return json.loads(
        subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="transformer,resnet50")
    parser.add_argument("--variants", default="graph,compile")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--against", help="a folder with another package oneflow: its graphs are measured beside"
    )
    parser.add_argument("--first", nargs=2, metavar=("MODEL", "VARIANT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.first:
        return first_result(*args.first)
    for model in args.models.split(","):
        sides = [(v, v, None) for v in args.variants.split(",") if v != "jax" or model == "transformer"]
        if args.against:
            sides.append(("graph of " + args.against, "graph", args.against))
        with tempfile.TemporaryDirectory() as folder:
            folders = {name: f"{folder}/{i}" for i, (name, *_) in enumerate(sides)}
            cold = {name: run(model, variant, folders[name], package) for name, variant, package in sides}
            warm = {name: [] for name, *_ in sides}
            for _ in range(args.turns):
                for name, variant, package in sides:
                    warm[name].append(run(model, variant, folders[name], package))
        for name, *_ in sides:
            median = statistics.median(w["cpu"] for w in warm[name])
            print(
                (
                    f"{model:12} {name:24} cold {cold[name]['cpu']:6.2f} s CPU, second process"
                    f" {median:5.2f} s CPU"
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
