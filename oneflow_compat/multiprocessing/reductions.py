"""oneflow.multiprocessing.reductions: torch's, and OneFlow's pairs of "reduce" and "rebuild" over named
shared memory.
"""

from __future__ import annotations

import numpy as np
import torch

from .. import _bind
from .shared_memory import SharedMemory

__all__ = [
    "rebuild_empty_parameter",
    "rebuild_empty_tensor",
    "rebuild_shm_parameter",
    "rebuild_shm_tensor",
    "reduce_parameter",
]


def rebuild_empty_tensor(shape, dtype, requires_grad):
    """A tensor without elements."""
    return torch.empty(tuple(shape), dtype=dtype, requires_grad=requires_grad)


def rebuild_empty_parameter(shape, dtype, requires_grad):
    """A parameter without elements."""
    return torch.nn.Parameter(torch.empty(tuple(shape), dtype=dtype), requires_grad)


def rebuild_shm_tensor(shm, shape, dtype, requires_grad):
    """A copy of the array of numpy's `dtype` in a shared block, which is released."""
    tensor = torch.from_numpy(np.ndarray(tuple(shape), dtype, shm.buf).copy())
    shm.close()
    shm.unlink()
    return tensor.requires_grad_(requires_grad)


def rebuild_shm_parameter(shm, shape, dtype, requires_grad):
    """`rebuild_shm_tensor` as a parameter."""
    return torch.nn.Parameter(rebuild_shm_tensor(shm, shape, dtype, False), requires_grad)


def reduce_parameter(tensor):
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
