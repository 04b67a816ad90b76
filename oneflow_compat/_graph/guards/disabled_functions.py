"""Functions that torch.compile replaces by wrappers of themselves: a program may go on with the wrapper.

The first call of a compiled function makes Dynamo wrap `_init_group` of every optimizer class, and some other
functions of torch, so that Dynamo does not trace them. The wrapper runs the same function with the same
arguments.
"""

from __future__ import annotations

import types
from typing import Any

from ..program.python_values import MISSING
from .guard import Guard
from .sources import ClassAttribute

_MODULE_OF_WRAPPERS = "torch._dynamo.eval_frame"


def disables_only(guard: Guard, current: object) -> bool:
    """Whether a source holds Dynamo's wrapper of the function that it held, or that its class inherited."""
    if type(current) is not types.FunctionType or not _is_wrapper(current):
        return False
    earlier = guard.value
    if earlier is MISSING and isinstance(guard.source, ClassAttribute):
        name = guard.source.key
        bases = (vars(base) for base in guard.owner.__mro__[1:])
        earlier = next((base[name] for base in bases if name in base), MISSING)
    return _without_wrapper(earlier) is _without_wrapper(current)


def _is_wrapper(function: types.FunctionType) -> bool:
    attributes = vars(function)
    return (
        function.__globals__.get("__name__") == _MODULE_OF_WRAPPERS
        and attributes.get("_torchdynamo_disable") is True
        and "_torchdynamo_orig_callable" in attributes
    )


def _without_wrapper(value: Any) -> Any:
    """Return the function in a wrapper, and any other value itself."""
    is_function = type(value) is types.FunctionType
    return vars(value)["_torchdynamo_orig_callable"] if is_function and _is_wrapper(value) else value
