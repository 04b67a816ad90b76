"""Run a layer, an optimizer and graphs on a torch that seems to lack private names; print {case: outcome} as
JSON.

    python hidden_names.py aten|inductor

A name is hidden from the files of this package only, as if torch had renamed it everywhere. Each case runs in
a process of its own, forked from one that has imported torch. Modules are not hidden, because Python finds an
imported module without its parent.
"""

import importlib
import importlib.util
import json
import os
import sys
import traceback
import types
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "oneflow_compat"
hidden: set[str] = set()
# Without these names, graphs run in eager mode.
FRAME_HOOK = {
    f"torch._C._dynamo.eval_frame.{name}"
    for name in (
        "_FrameAction",
        "_FrameExecStrategy",
        "reset_code",
        "set_code_exec_strategy",
        "set_eval_frame",
    )
} | {"torch._C._dynamo.guards.RootGuardManager"}


def ledger():
    """The ledger of private names, loaded without the package."""
    spec = importlib.util.spec_from_file_location("ledger", PACKAGE / "_upstream" / "hooks.py")
    module = sys.modules["ledger"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_hidden(path: str, frame: types.FrameType) -> bool:
    return path in hidden and frame.f_code.co_filename.startswith(str(PACKAGE))


class Hideable:
    """An attribute of a class, which seems missing while it is hidden."""

    def __init__(self, path: str, value: object) -> None:
        self.path, self.value = path, value

    def __get__(self, instance, owner):
        if is_hidden(self.path, sys._getframe(1)):
            raise AttributeError(self.path)
        return self.value.__get__(instance, owner) if hasattr(self.value, "__get__") else self.value


def make_hideable(owner_path: str, names: set[str]) -> None:
    owner, module = importlib.import_module("torch"), "torch"
    for name in owner_path.split(".")[1:]:
        module = f"{module}.{name}"
        owner = getattr(owner, name, None) or importlib.import_module(module)
    if isinstance(owner, type):
        for name in names:
            value = next(vars(cls)[name] for cls in owner.__mro__ if name in vars(cls))
            setattr(owner, name, Hideable(f"{owner_path}.{name}", value))
        return
    names = {name for name in names if not isinstance(getattr(owner, name, None), types.ModuleType)}
    base = type(owner)

    class Module(base):
        def __getattribute__(self, name):
            if name in names and is_hidden(f"{owner_path}.{name}", sys._getframe(1)):
                raise AttributeError(f"module {owner_path!r} has no attribute {name!r}")
            return base.__getattribute__(self, name)

    if hasattr(base, "__getattr__"):  # Python calls it after __getattribute__() raised

        def attribute_of_last_resort(self, name):
            if name in names and is_hidden(f"{owner_path}.{name}", sys._getframe(1)):
                raise AttributeError(f"module {owner_path!r} has no attribute {name!r}")
            return base.__getattr__(self, name)

        Module.__getattr__ = attribute_of_last_resort
    owner.__class__ = Module


def check_layer():
    import oneflow as flow

    layer = flow.nn.Linear(2, 1)
    layer(flow.ones(3, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[3, 3]]


def steps(backend):
    """The losses of three steps, in eager mode if there is no backend, else as a graph."""
    import torch

    import oneflow as flow

    layer = flow.nn.Linear(4, 3)
    layer.load_state_dict({"weight": torch.arange(12.0).view(3, 4) / 7, "bias": torch.ones(3)})
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    x = torch.arange(8.0).view(2, 4) / 9

    def loss_of(x):
        loss = torch.nn.functional.gelu(layer(x)).square().mean()
        loss.backward()
        return loss

    if backend is None:
        losses = []
        for _ in range(3):
            losses.append(loss_of(x).item())
            optimizer.step()
            optimizer.zero_grad()
        return losses

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.add_optimizer(optimizer)
            self.config.set_backend(backend)

        def build(self, x):
            return loss_of(x)

    graph = Step()
    losses = [graph(x).item() for _ in range(3)]
    assert graph._engine.programs or hidden >= FRAME_HOOK, "build() runs in eager mode"
    return losses


def check_graph(backend):
    check_layer()
    eager, captured = steps(None), steps(backend)
    close = all(abs(a - b) <= 1e-6 * abs(a) for a, b in zip(eager, captured))
    assert eager == captured if backend == "aten" else close, (eager, captured)


def outcome_of(names, check) -> str:
    """What a check says in a forked process without these names: "right" or the error."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        hidden.update(names)
        try:
            check()
            outcome = "right"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
            if "does not have" not in outcome:
                outcome += traceback.format_exc()[-1500:]
        os.write(writer, outcome.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        outcome = pipe.read().decode()
    os.wait()
    return outcome


def aten_cases(needs):
    """Yield (case, hidden names, check) without inductor."""
    yield "import", set(needs), check_layer
    required = {path for path, need in needs.items() if need in ("nn.Graph", "oneflow.optim")}
    yield "optional names", set(needs) - required - FRAME_HOOK, lambda: check_graph("aten")
    yield "frame hook", set(needs) - required, lambda: check_graph("aten")
    for path in sorted(required):
        yield path, {path}, lambda: check_graph("aten")


def inductor_cases(needs):
    """Yield (case, hidden names, check): what inductor needs, and each other name in turn."""
    used = {path: need for path, need in needs.items() if need not in ("nn.Graph", "oneflow.optim")}
    required = {path for path, need in used.items() if need == "the inductor backend"}
    yield "optional names", set(used) - required - FRAME_HOOK, lambda: check_graph("inductor")
    for path in sorted(required):
        yield path, {path}, lambda: check_graph("inductor")
    for path in sorted(path for path, need in used.items() if need == "speed"):
        yield path, {path}, lambda: check_graph("inductor")
    for path in sorted(path for path, need in used.items() if need == "a setting"):
        yield path, {path}, lambda: check_graph("aten")


def main(backend):
    needs = {path: hook.needed_by for path, hook in ledger().HOOKS.items() if "testing" not in path}
    if backend == "aten":
        needs = {path: need for path, need in needs.items() if not path.startswith("torch._inductor")}
    owners = {}
    for path in needs:
        owners.setdefault(path.rpartition(".")[0], set()).add(path.rpartition(".")[2])
    for owner, names in owners.items():
        if owner != "torch._inductor.config":  # a module whose class cannot be replaced
            make_hideable(owner, names)
    cases = aten_cases(needs) if backend == "aten" else inductor_cases(needs)
    outcomes = {}
    for case, names, check in cases:
        outcomes[case] = outcome_of(names, check)
        print(case, outcomes[case][:200], file=sys.stderr, flush=True)
        if case == "import":  # the cases after it fork from a process that has imported the package
            import oneflow  # noqa: F401
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1])
