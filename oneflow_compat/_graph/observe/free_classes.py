"""Classes whose objects hold nothing that could change, so that reads of them have no guard."""

import types
from typing import Any

import torch

FREE = frozenset(
    [
        int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented), slice, range,
        torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, types.CodeType,
        types.CellType, types.TracebackType, types.FrameType, types.FunctionType, types.BuiltinFunctionType,
        types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType,
    ]
)  # fmt: skip
# Views of dicts. Most are made, read and dropped by one statement, which reads the dict, too.
VIEWS = frozenset([type({}.keys()), type({}.values()), type({}.items())])
FREE_OF_ATTRIBUTES = FREE - {types.FunctionType}
# The same, with their subclasses.
FREE_BASES = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch._C._FunctionBase,
)


def is_a(value: object, classes: Any) -> bool:
    """Whether the value is an instance, by its type alone: isinstance() may run code of the user's object."""
    return issubclass(type(value), classes)
