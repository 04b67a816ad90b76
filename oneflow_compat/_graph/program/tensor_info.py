"""What a program knows about a tensor: shape, dtype, device and stride."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from .symbolic import known_size


def describe(tensor: torch.Tensor) -> TensorInfo:
    """(shape, dtype, device, stride) as a small record for node.meta["tensor"]."""
    stride = tensor.stride() if tensor.layout is torch.strided else None
    if type(tensor) is FakeTensor and tensor._has_symbolic_sizes_strides:
        return TensorInfo(
            tuple(map(known_size, tensor.shape)),
            tensor.dtype,
            tensor.device,
            stride and tuple(map(known_size, stride)),
        )
    return TensorInfo(tuple(tensor.shape), tensor.dtype, tensor.device, stride)


class TensorInfo(tuple[Any, ...]):
    """(shape, dtype, device, stride) of a tensor."""

    def __new__(cls, shape: Any, dtype: torch.dtype, device: torch.device, stride: Any) -> TensorInfo:
        return tuple.__new__(cls, (shape, dtype, device, stride))

    shape = property(lambda self: self[0])
    dtype = property(lambda self: self[1])
    device = property(lambda self: self[2])
    stride = property(lambda self: self[3])
