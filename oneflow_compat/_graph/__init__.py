"""The engine: a Python build function becomes one captured ATen program per input signature.

Two front ends use it (nn/graph/ and compatible/single_client/); it knows neither. The entry point:

    definition = GraphDefinition(
        build,                # callable(*args, **kwargs); runs only while a program is captured
        modules={},           # {prefix: nn.Module}: their parameters and buffers are named "prefix.a.b"
        tensors={},           # {name: Tensor}: further named state (a get_variable table)
        optimizers=(),        # [(torch.optim.Optimizer, lr scheduler or None), ...]
        grad_scaler=None,     # torch.amp.GradScaler, StaticGradScaler or None
        recompute=(),         # modules whose activations are recomputed in backward
        name="graph",
        owner=None,           # the object whose method build() is: its attributes are state
        writes_through=lambda: True,  # False: writes to arguments and captured tensors stay inside the call
    )
    engine = Engine(definition, Config())  # Config: what passes and which backend; see config.py
    out = engine(*args, **kwargs)         # build + backward + clip + unscale + step, then scheduler.step()
    engine.compile(*args, **kwargs)       # capture and compile without running: returns the Program
    engine.program                        # the last used Program, None before the first call
    engine.programs                       # every cached Program, most recently used last

`modules`, `tensors`, `optimizers`, `grad_scaler` and `recompute` may each be a callable that returns the
value. They are read after build() has run under capture, so a front end may create variables and its
optimizer inside build. Real tensors created inside build (variables, constants kept between calls) must be
created under

    with outside_capture(): ...

Otherwise they are symbolic and die with the capture. `capturing()` is true while build runs.

Rules both front ends can rely on:
- build must call backward itself; the engine only steps optimizers afterwards. A call does not change p.grad,
  and gradients never accumulate between calls.
- Every real tensor that the captured code touches is a live input of the program. Module state is located by
  its path in the module, optimizer state by its path in optimizer.state, and other tensors by object.
- group["lr"] is an input. Groups that have clip_grad_max_norm and clip_grad_norm_type are clipped by
  their own total norm before the update.
- An exception inside build leaves parameters, buffers, gradients, optimizer state and the random state
  unchanged.
"""

from typing import Any

from .._upstream.hooks import GRAPHS
from .._upstream.missing import require

require(GRAPHS)

__all__ = [
    "ArgumentNumbers",
    "Config",
    "CutStep",
    "Engine",
    "GraphDefinition",
    "Program",
    "Slot",
    "capturing",
    "outside_capture",
]

_HOME = {
    "ArgumentNumbers": ".argument_numbers",
    "Config": ".config",
    "CutStep": ".cut_step",
    "Engine": ".engine",
    "GraphDefinition": ".definition",
    "Program": ".program.program",
    "Slot": ".program.program",
    "capturing": ".._active",
    "inside_another": ".errors",
    "outside_capture": ".._active",
}


def __getattr__(name: str) -> Any:
    """Resolve the public names on first use, so that importing the package costs nothing."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
