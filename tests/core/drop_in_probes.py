"""Probes of a process: what torch's methods, classes and settings do. Prints a JSON object {probe: outcome}.

    python drop_in_probes.py torch NAMES      with plain torch
    python drop_in_probes.py oneflow NAMES    after `import oneflow`

NAMES are the methods that OneFlow extends; they are probed with more arguments. test_drop_in.py compares the
two.
"""

import builtins
import gc
import io
import json
import logging
import os
import pickle
import re
import signal
import sys
import threading
import traceback
import warnings

import numpy as np
import torch

T = torch.Tensor
METHODS = {name: getattr(T, name) for name in sorted(dir(T))}  # as a table made before the import holds them
STATE = {
    "signals": lambda: [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
    "hooks of errors": lambda: [
        f.__module__ for f in (sys.excepthook, sys.displayhook, threading.excepthook, sys.unraisablehook)
    ],
    "import statement": lambda: repr(builtins.__import__),
    "filters of warnings": lambda: len(warnings.filters),
    "handlers of logging": lambda: [len(logging.getLogger().handlers), logging.getLogger().level],
    "environment": lambda: sorted(os.environ.items()),
    "threads": lambda: [threading.active_count(), torch.get_num_threads()],
    "collector": lambda: [gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit()],
    "random state": lambda: torch.get_rng_state().sum().item(),
    "default dtype": lambda: str(torch.get_default_dtype()),
    "numpy": lambda: [np.geterr(), np.get_printoptions()["precision"]],
    "grad mode": lambda: [torch.is_grad_enabled(), torch.is_inference_mode_enabled()],
    "names of torch": lambda: [
        [n, repr(type(v))]
        for m in (torch, torch.nn, torch.nn.functional, torch.optim)
        for n, v in vars(m).items()
    ],
    "classes": lambda: [c.__mro__.__repr__() for c in (T, torch.nn.Parameter, torch.nn.Linear, torch.Size)],
    "names of modules": lambda: sorted(vars(torch.nn.Module)),
}
before = {name: probe() for name, probe in STATE.items()}

__import__(sys.argv[1])
EXTENDED = sys.argv[2].split()

# The method starts another process, asks for another device, leaves memory uninitialized, or gives an
# address.
SKIPPED = set(
    (
        "share_memory_ cuda xpu ipu hpu mtia pin_memory new_empty resize_ resize_as_ new new_empty_strided"
    ).split()
)
SKIPPED |= {
    "empty_like",
    "_cdata",
    "const_data_ptr",
    "storage",
    "untyped_storage",
    "data_ptr",
    "grad_dtype",
    "set_",
    "module_load",
    "__dir__",
}
SKIPPED |= {
    "__new__",
    "__init__",
    "__reduce__",
    "__reduce_ex__",
    "__init_subclass__",
    "__subclasshook__",
    "__class__",
}
SKIPPED |= {"__sizeof__", "__dict__", "__weakref__", "__hash__", "__getstate__", "__delattr__", "__setattr__"}
FEW_ARGUMENTS = {"": (), "(x)": None}
ARGUMENTS = FEW_ARGUMENTS | {"(1)": (1,), "(2.5)": (2.5,), "(object)": (object(),), "(2)": (1, 2)}
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)


def text(value):
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            values = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        return [str(type(value)), str(values.dtype), list(values.shape), str(values)]
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(text, value)]
    return re.sub(
        "0x[0-9a-f]+|bound method|built-in method|of Tensor object at", "", repr(value).split(" of ")[0]
    )


def without_addresses(message):
    """The message; a bound method of torch names the class Tensor, and a method of the class TensorBase."""
    return re.sub("0x[0-9a-f]+", "", message).replace("TensorBase.", "Tensor.")


def outcome(call):
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = ["gives", text(call())]
        except Exception as error:
            result = ["raises", type(error).__name__, without_addresses(str(error))]
    where = [[w.category.__name__, os.path.basename(w.filename), str(w.message)[:60]] for w in caught]
    return [*result, where]


class Handled(torch.Tensor):
    """A subclass with a table of functions, filled before the import."""

    table = {}

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return (
            cls.table[func]
            if func in cls.table
            else super().__torch_function__(func, types, args, kwargs or {})
        )


Handled.table = {
    f: f"handled {name}" for name, f in METHODS.items() if callable(f) and not name.startswith("__")
}


def tensor(dtype, leaf=False):
    x = torch.tensor([[1, 0], [1, 1]], dtype=dtype)
    return x.requires_grad_() if leaf else x


def compiled():
    f = lambda x: (x.view(-1).numpy() + 1, torch.Tensor.sub(x, 1), 1 - x, x.softmax(0))
    return torch.compile(f, backend="eager")(torch.ones(2, 2))


def exported():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return (x.view(-1) @ x.flatten()).sub(1)

    return str(torch.export.export(Layer(), (torch.ones(2, 2),)).graph)


def saved():
    file = io.BytesIO()
    torch.save({"weight": torch.nn.Linear(2, 2).state_dict(), "x": torch.ones(2)}, file)
    return len(file.getvalue())


def lost_write():
    x = torch.arange(6.0).view(2, 3)
    x.t().view(-1).add_(5)


def probes():
    for name in METHODS:
        if name in SKIPPED:
            continue
        for dtype in DTYPES:
            for label, arguments in (ARGUMENTS if name in EXTENDED else FEW_ARGUMENTS).items():

                def call(name=name, dtype=dtype, arguments=arguments):
                    x = tensor(dtype)
                    method = getattr(x, name)
                    given = (tensor(dtype),) if arguments is None else arguments
                    return method(*given) if callable(method) else method

                yield f"{name}{label} {dtype}", call
        yield f"{name} of a leaf", lambda name=name: getattr(tensor(torch.float32, leaf=True), name)()
        yield f"{name} by a wrong name", lambda name=name: getattr(tensor(torch.float32), name)(nonsense=1)
    for name, method in METHODS.items():
        if not name.startswith("_"):
            yield f"pickle {name}", lambda method=method, name=name: pickle.dumps(getattr(T, name))
            yield f"same {name}", lambda method=method, name=name: getattr(T, name) is method
            if callable(method) and name not in SKIPPED:
                x = torch.ones(2, 2).as_subclass(Handled)
                yield f"handled {name}", lambda name=name, x=x: handled(getattr(x, name))
    yield "hash", lambda: [hash(T.view) == hash(METHODS["view"]), T.view == METHODS["view"]]
    yield (
        "lazy layer",
        lambda: str(torch.nn.LazyLinear(3).load_state_dict(torch.nn.LazyLinear(3).state_dict())),
    )
    yield "compile", compiled
    yield "export", exported
    yield "save", saved
    yield "lost write", lost_write
    yield "grad", lambda: torch.func.grad(lambda x: (x.view(-1) @ x.view(-1)).sub(1))(torch.ones(2, 2))
    yield "vmap", lambda: torch.vmap(lambda x: x.softmax(0).sub(1).squeeze(0))(torch.ones(2, 2))
    yield "jvp", lambda: torch.func.jvp(lambda x: x.view(-1).sub(1), (torch.ones(2),), (torch.ones(2),))
    yield "fx", lambda: str(torch.fx.symbolic_trace(lambda x: x.view(-1).sub(1)).graph)
    yield "script", lambda: str(torch.jit.script(scripted).graph)
    yield "traceback", lambda: frames_of_an_error()


def handled(method):
    """The result of the first call that the method accepts."""
    for arguments in ((torch.ones(2, 2),), (1,), (), (1, 1)):
        try:
            return method(*arguments)
        except (TypeError, RuntimeError, ValueError, IndexError):
            pass


def scripted(x: torch.Tensor):
    return x.view(-1).sub(1)


def frames_of_an_error():
    try:
        torch.ones(2).view(3)
    except RuntimeError as error:
        return [os.path.basename(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]


if __name__ == "__main__":
    outcomes = {name: outcome(call) for name, call in probes()}
    outcomes |= {
        f"state: {name}": ["gives", repr(probe() == before[name]), []] for name, probe in STATE.items()
    }
    outcomes["dir"] = sorted(dir(T))
    json.dump(outcomes, sys.stdout)
