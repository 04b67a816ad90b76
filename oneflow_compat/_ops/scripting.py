"""TorchScript: `script` and its kin, and the tables by which TorchScript compiles torch's function for ours.

TorchScript knows functions by identity (builtins), by a table of pairs (boolean_dispatch) or by their source,
so a script that says `oneflow.zeros` needs an entry for that very object.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .. import _bind
from .core import get_dialect

__all__ = ["Final", "ignore", "interface", "is_scripting", "is_tracing", "script", "unused"]

_SPACES = {
    "oneflow": "torch",
    "oneflow.nn.functional": "torch.nn.functional",
    "oneflow.nn.init": "torch.nn.init",
    "oneflow.linalg": "torch.linalg",
}


def is_tracing() -> bool:
    """Whether torch.jit is tracing."""
    return torch.jit.is_tracing()


def is_scripting() -> bool:
    """Whether the code is running as TorchScript."""
    return torch.jit.is_scripting()


def ignore(drop: bool | Callable[..., Any] = False, **kwargs: Any) -> Any:
    """torch.jit.ignore."""
    return torch.jit.ignore(drop, **kwargs)


def unused(fn: Any) -> Any:
    """torch.jit.unused."""
    return torch.jit.unused(fn)


def interface(fn: Any) -> Any:
    """The argument itself: OneFlow has no script interfaces."""
    return fn


def script(
    obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> Any:
    """The argument itself, as in OneFlow; torch.jit.script compiles."""
    return obj


def jit_script(
    obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> Any:
    """torch.jit.script(obj), or `obj` itself where TorchScript cannot compile it (an error in torch's
    dialect).
    """
    _teach()
    try:
        return torch.jit.script(obj, optimize, _frames_up + 1, _rcb, example_inputs)
    except (
        RuntimeError,
        OSError,
        TypeError,
        ValueError,
        torch.jit.frontend.FrontendError,
    ):  # OSError: no source
        if get_dialect() == "torch":
            raise
        return obj


def Final(*args: Any, **kwargs: Any) -> Any:
    """typing.Final, or the argument itself when called."""
    return args[0] if args else None


@functools.cache
def _teach() -> None:
    """Register our functions in TorchScript's tables beside torch's. This takes up to a second, so it runs
    only when a script is compiled.
    """
    with warnings.catch_warnings():
        # torch.jit.script() compiles the overloads and warns that it is deprecated (torch 2.14). The caller
        # gets the warning of his own script.
        warnings.simplefilter("ignore", FutureWarning)
        _register_functions()


def _register_functions() -> None:
    import torch._jit_internal as internal
    import torch.jit._builtins as builtins
    import torch.jit._script as script
    import torch.jit._state as state

    operators, dispatched = builtins._get_builtin_table(), internal.boolean_dispatched
    for space, torch_space in _SPACES.items():
        theirs_all = importlib.import_module(torch_space)
        for name in {**_bind.function_rows(space), **_bind.rename_rows(space)}:
            theirs = getattr(theirs_all, name, None)
            ours = _bind.ours(space, name)
            if theirs is None or ours is theirs:
                continue
            if id(theirs) in operators:
                operators[id(ours)] = operators[id(theirs)]
            elif inspect.isfunction(ours) and theirs in dispatched:
                dispatched[ours] = dispatched[theirs]
            elif internal._get_fn_overloads(internal._qualified_name(theirs)):
                state._set_jit_overload_cache(ours, script._get_overloads(theirs))
            elif inspect.isfunction(ours) and inspect.isfunction(theirs):
                setattr(ours, "__prepare_scriptable__", lambda theirs=theirs: theirs)  # noqa: B010
    script_classes: dict[Any, Any] = state._script_classes
    script_classes[_bind.ours("oneflow", "device")] = torch._C.DeviceObjType.get()
