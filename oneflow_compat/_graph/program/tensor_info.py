"""What a program knows about a tensor: shape, dtype, device and stride."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from .symbolic import known_size

Shape = tuple[int | str, ...]  # a string stands for a size that is no constant of the program


class TensorInfo(NamedTuple):
    """The metadata of a tensor in node.meta["tensor"]. `stride` is None for a sparse tensor."""

    shape: Shape
    dtype: torch.dtype
    device: torch.device
    stride: Shape | None


def describe(tensor: torch.Tensor) -> TensorInfo:
    """Return the metadata of a tensor."""
    stride = tensor.stride() if tensor.layout is torch.strided else None
    if type(tensor) is FakeTensor and tensor._has_symbolic_sizes_strides:
        return TensorInfo(
            tuple(map(known_size, tensor.shape)),
            tensor.dtype,
            tensor.device,
            stride and tuple(map(known_size, stride)),
        )
    return TensorInfo(tuple(tensor.shape), tensor.dtype, tensor.device, stride)
