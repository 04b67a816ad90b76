"""Where tensors lie in memory: whether two are one, and whether they have elements in common."""

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import torch

from ..._global.tensor import memory_of


def memory_id(tensor: torch.Tensor) -> int:
    """Return an identity of the memory of a tensor that is alive."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def storage_of(value: object) -> int | None:
    """Return an identity of the memory of a tensor; None for a value that has no storage."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return memory_id(memory_of(value))


def view_of(tensor: torch.Tensor) -> Hashable:
    """Return what two tensors have in common that read the same memory alike, so that a program has one.

    A tensor without strides, such as a sparse one, is the same as itself only.
    """
    storage = storage_of(tensor)
    if storage is None:
        return id(tensor)
    return storage, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def overlapping(tensors: Sequence[torch.Tensor]) -> set[int]:
    """Return the positions of the tensors that may share bytes with another one; all lie in one storage.

    Torch has such a function (`compute_overlapping_tensors`, 2.13), which takes the columns of a matrix for
    apart from one of its rows: `x = base[:, :7]` and `x[6:7]`, where the rows of `base` have 14 elements.
    """
    pairs = itertools.combinations(enumerate(tensors), 2)
    return {i for (a, first), (b, second) in pairs if _overlap(first, second) for i in (a, b)}


class _Runs(NamedTuple):
    """Where a tensor lies: runs of `width` bytes, from `start` to `end`, at multiples of `step` from the
    start. There is one run if the step is 0.
    """

    start: int
    end: int
    width: int
    step: int


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors may share bytes; True if their positions depend on values or symbols."""
    if a.numel() == 0 or b.numel() == 0:
        return False
    if a._has_symbolic_sizes_strides or b._has_symbolic_sizes_strides:
        return True
    first, second = _runs(a), _runs(b)
    if first.end <= second.start or second.end <= first.start:
        return False
    step = math.gcd(first.step, second.step)
    if step == 0:
        return True
    distance = (second.start - first.start) % step
    return distance < first.width or distance + second.width > step


def _runs(tensor: torch.Tensor) -> _Runs:
    size = tensor.element_size()
    start, width, step, last = int(tensor.storage_offset()) * size, size, 0, 0
    for stride, count in sorted(_dimensions(tensor)):
        last += stride * size * (count - 1)
        if step == 0 and stride * size == width:
            width *= count
        else:
            step = math.gcd(step, stride * size)
    return _Runs(start, start + last + size, width, step)


def _dimensions(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Yield (stride, size) of the dimensions with several elements in different places."""
    for stride, count in zip(tensor.stride(), tensor.shape):
        if count > 1 and stride > 0:
            yield stride, count
