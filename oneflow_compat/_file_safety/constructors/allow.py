"""The names that a safe load may construct, each with the checked function that creates its values.

A name that is absent is refused. A name of `VALUES` may appear in a file as a value and is never called. A
name of a table of constructors is called through its constructor, which checks every argument and charges
what it allocates. Classes that the user allowed with `torch.serialization.add_safe_globals` are called
unchanged, because the user trusts them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from ..budget import Budget
from ..errors import RefusedError
from ..shown import title
from . import numpy_values, plain_values, torch_values

_ALIASES = {
    "__builtin__": "builtins",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
    "pathlib._local": "pathlib",
    "torch.tensor": "torch._tensor",
}

# module: names. Checkpoints contain them beside tensors: a default factory, a dtype, the activation of a
# layer.
VALUES = {
    "builtins": "list dict set tuple int float bool str bytes",
    "collections": "OrderedDict Counter",
    "numpy": (
        "ndarray bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
        " complex128"
    ),
    "torch": (
        "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32"
        " complex64 complex128 qint8 quint8 qint32 quint4x2 quint2x4 float8_e4m3fn float8_e5m2"
        " float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu strided sparse_coo sparse_csr sparse_csc sparse_bsr"
        " sparse_bsc contiguous_format channels_last channels_last_3d preserve_format per_tensor_affine"
        " per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams"
        " Tensor"
    ),
    "torch._tensor": "Tensor",
    "torch.nn.parameter": "Parameter",
    "torch.nn.functional": "relu gelu silu tanh elu leaky_relu softmax hardtanh relu6",
}


class Constructor:
    """A name that a file may call. Objects of the file hold this wrapper, never the function itself."""

    __slots__ = ("name", "make")

    def __init__(self, name: str, make: Any) -> None:
        self.name, self.make = name, make


@functools.cache
def _allowed(module: str, name: str) -> Any:
    """Return the value or Constructor of that name, or None."""
    module = _ALIASES.get(module, module)
    make = CONSTRUCTORS.get(f"{module}.{name}")
    if name in VALUES.get(module, "").split():
        home = importlib.import_module(module)
        return getattr(home, name, None)
    return None if make is None else Constructor(f"{module}.{name}", make)


def find(module: str, name: str) -> Any:
    """Return the value or Constructor of that name, the user's additions included, or None."""
    allowed = _allowed(module, name)
    return allowed if allowed is not None else user_globals().get(f"{module}.{name}")


@functools.cache
def _constructors_of_values() -> dict[int, Constructor]:
    """Return {id of value: Constructor} for the allowed values that a file may also call."""
    out = {}
    for module, names in VALUES.items():
        for name in names.split():
            full = f"{module}.{name}"
            if full in CONSTRUCTORS:
                out[id(_allowed(module, name))] = Constructor(full, CONSTRUCTORS[full])
    return out


def call(target: Any, arguments: object, budget: Budget) -> Any:
    """Return the result of a file's call of `target`. Raise RefusedError if it may not be called."""
    if not isinstance(arguments, tuple):
        raise RefusedError(f"altered: the arguments of a call are a {type(arguments).__name__}")
    constructor = target if isinstance(target, Constructor) else _constructors_of_values().get(id(target))
    if constructor is not None:
        return constructor.make(budget, *arguments)
    if is_user_global(target):
        return target(*arguments)
    raise RefusedError(
        f"it calls {target.name if isinstance(target, Constructor) else title(target)}, which a safe load"
        " does not call. If you trust the file, load it with"
        " weights_only=False"
    )


def new(target: Any, arguments: Any, budget: Budget) -> Any:
    """Return the result of a file's `target.__new__(*arguments)`. Raise RefusedError if it is not allowed."""
    if isinstance(target, type) and is_user_global(target):
        return target.__new__(target, *arguments)
    return call(target, arguments, budget)


def is_user_global(target: object) -> bool:
    """Whether the user allowed this object."""
    return any(target is item for item in user_globals().values())


def user_globals() -> dict[str, Any]:
    """Return {full name: object} of what the user allowed with `torch.serialization.add_safe_globals`."""
    out = {}
    for item in torch.serialization.get_safe_globals():
        obj, full = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
        out[full] = obj
    return out


# --------------------------------------------------------------------------- classes the user allowed
def _from_type(budget: Budget, function: Any, cls: type, arguments: Any, state: Any) -> Any:
    """Return a tensor with attributes, or of a subclass that the user allowed."""
    tensor = torch_values.check_tensor(call(function, arguments, budget))
    if cls is not type(tensor):
        if cls not in (torch.Tensor, torch.nn.Parameter) and not is_user_global(cls):
            raise RefusedError(f"it holds a tensor of class {title(cls)}, which a safe load does not make")
        tensor = tensor.as_subclass(cls)
    own_setstate = getattr(cls, "__setstate__", torch.Tensor.__setstate__)
    if is_user_global(cls) and own_setstate is not torch.Tensor.__setstate__:
        tensor.__setstate__(state)
        return tensor
    return torch_values.set_attributes(tensor, state, is_user_global(cls))


def _wrapper(
    budget: Budget,
    cls: type,
    dtype: Any,
    size: Any,
    stride: Any,
    offset: Any,
    layout: Any,
    device: Any,
    requires_grad: Any,
) -> Any:
    """Return a tensor of a subclass without values of its own, if the user allowed the subclass."""
    if not is_user_global(cls):
        raise RefusedError(f"it holds a tensor of class {title(cls)}, which a safe load does not make")
    return torch._utils._rebuild_wrapper_subclass(
        cls,
        dtype,
        torch_values.integers("size", size),
        torch_values.integers("stride", stride),
        offset,
        layout,
        device,
        requires_grad,
    )


# full name: constructor(budget, *arguments)
CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    **plain_values.CONSTRUCTORS,
    **numpy_values.CONSTRUCTORS,
    **torch_values.CONSTRUCTORS,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
}
