"""Make TorchScript compile torch's function when a script names our function of the same name.

It knows functions by identity (builtins), by a table of pairs (boolean_dispatch) or by their source,
so a script that says `oneflow.zeros` needs an entry for that very object.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import torch

from . import _bind

_SPACES = {
    "oneflow": "torch",
    "oneflow.nn.functional": "torch.nn.functional",
    "oneflow.nn.init": "torch.nn.init",
    "oneflow.linalg": "torch.linalg",
}


@functools.cache
def teach() -> None:
    """Register our functions in TorchScript's tables beside torch's. This takes up to a second, so it runs
    only when a script is compiled.
    """
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
