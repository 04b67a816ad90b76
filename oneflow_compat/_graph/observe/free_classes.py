"""Classes whose objects hold nothing that could change, so that reads of them have no guard."""

from __future__ import annotations

import types

import torch

FREE = frozenset(
    [
        int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented), slice, range,
        torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, types.CodeType,
        types.CellType, types.TracebackType, types.FrameType, types.FunctionType, types.BuiltinFunctionType,
        types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType,
        type({}.keys()), type({}.values()), type({}.items()),
    ]
)  # fmt: skip
FREE_OF_ATTRIBUTES = FREE - {types.FunctionType}
# The same, with their subclasses.
FREE_BASES = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    torch._C._FunctionBase,
    BaseException,
)
