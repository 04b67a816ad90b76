"""Operators of oneflow._C on tensor buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .._ops._signature import spelled
from ..nn.image import flip
from .buffers import tensor_buffer_to_tensor as whole

if TYPE_CHECKING:
    from .buffers import TensorBuffer


def image_flip(x: TensorBuffer, flip_code: int | torch.Tensor) -> TensorBuffer:
    """Return the images of a tensor buffer, flipped by code: 0 none, 1 left-right, 16 upside down, 17 both.

    The result is a tensor buffer of the same shape; each image has shape (height, width, channels).
    """
    return flip()(x, flip_code)


@spelled("x=input")
def tensor_buffer_to_tensor(input: TensorBuffer, instance_shape: Any, dtype: Any) -> torch.Tensor:
    """Return one tensor of the buffer's cells, which all have `instance_shape` and `dtype`. The two arguments
    may come in either order.
    """
    if isinstance(instance_shape, torch.dtype):
        instance_shape, dtype = dtype, instance_shape
    return whole(input, dtype, instance_shape)
