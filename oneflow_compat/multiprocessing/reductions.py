"""oneflow.multiprocessing.reductions: torch's, and OneFlow's pairs of "reduce" and "rebuild" over named
shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _bind
from .shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "rebuild_empty_parameter",
    "rebuild_empty_tensor",
    "rebuild_shm_parameter",
    "rebuild_shm_tensor",
    "reduce_parameter",
]


def rebuild_empty_tensor(shape: Sequence[int], dtype: torch.dtype, requires_grad: bool) -> torch.Tensor:
    """A tensor without elements."""
    return torch.empty(tuple(shape), dtype=dtype, requires_grad=requires_grad)


def rebuild_empty_parameter(
    shape: Sequence[int], dtype: torch.dtype, requires_grad: bool
) -> torch.nn.Parameter:
    """A parameter without elements."""
    return torch.nn.Parameter(torch.empty(tuple(shape), dtype=dtype), requires_grad)


def rebuild_shm_tensor(
    shm: SharedMemory, shape: Sequence[int], dtype: np.dtype[Any], requires_grad: bool
) -> torch.Tensor:
    """A copy of the array of numpy's `dtype` in a shared block, which is released."""
    tensor = torch.from_numpy(np.ndarray(tuple(shape), dtype, shm.buf).copy())
    shm.close()
    shm.unlink()
    return tensor.requires_grad_(requires_grad)


def rebuild_shm_parameter(
    shm: SharedMemory, shape: Sequence[int], dtype: np.dtype[Any], requires_grad: bool
) -> torch.nn.Parameter:
    """`rebuild_shm_tensor` as a parameter."""
    return torch.nn.Parameter(rebuild_shm_tensor(shm, shape, dtype, False), requires_grad)


def reduce_parameter(tensor: torch.Tensor) -> tuple[Any, ...]:
    """(rebuild, arguments) of a parameter: pickled, it travels by name through a shared block that the
    receiver releases.
    """
    if not tensor.numel():
        return rebuild_empty_parameter, (tensor.shape, tensor.dtype, tensor.requires_grad)
    array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    shm = SharedMemory(create=True, size=array.nbytes)
    np.ndarray(array.shape, array.dtype, shm.buf)[...] = array
    return rebuild_shm_parameter, (shm, tuple(array.shape), array.dtype, tensor.requires_grad)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.multiprocessing.reductions")
