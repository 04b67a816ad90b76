"""The row-major layout of a computed tensor, for a view() that torch refuses.

torch lays `x.t() + 1` out as its operand `x.t()`, and OneFlow lays it out row by row. So OneFlow has views
of it that torch lacks. If no other tensor sees the memory, it is laid out row by row before the view is made.
The view then shares the memory of the tensor, and a write to either reaches both.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class RowMajorLayout:
    """The strides and the offset of a tensor after the tensor that owns its memory is laid out row by row.

    The owner is the tensor itself, or the tensor that it is a view of.
    """

    owner: torch.Tensor
    stride: tuple[int, ...]
    offset: int


def row_major_layout(tensor: torch.Tensor) -> RowMajorLayout | None:
    """Return the row-major layout of a tensor, or None if its memory must stay as it is."""
    owner = tensor if tensor._base is None else tensor._base
    is_leaf = owner.is_leaf and owner.requires_grad
    if type(owner) is not type(tensor) or is_leaf or owner.is_contiguous():
        return None
    sizes = (*tensor.shape, *tensor.stride(), *owner.shape, *owner.stride())
    if any(type(size) is not int for size in sizes) or not _is_unseen(tensor, owner):
        return None
    return _geometry(tensor, owner)


def _geometry(tensor: torch.Tensor, owner: torch.Tensor) -> RowMajorLayout | None:
    """Translate each step of `tensor` into coordinates of `owner`, and these into row-major steps."""
    dimensions = sorted((d for d in range(owner.dim()) if owner.shape[d] > 1), key=owner.stride, reverse=True)
    sizes, steps = [owner.shape[d] for d in dimensions], [owner.stride(d) for d in dimensions]
    if steps != [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]:
        return None  # gaps, or elements that share memory
    rows = [math.prod(owner.shape[d + 1 :]) for d in dimensions]
    strides = [s if n > 1 else 0 for n, s in zip(tensor.shape, tensor.stride())]
    offset = tensor.storage_offset() - owner.storage_offset()
    coordinates = [_coordinates(distance, steps) for distance in (*strides, offset)]
    if _cross_a_dimension(tensor.shape, coordinates, sizes):
        return None
    *stride, offset = (sum(i * step for i, step in zip(c, rows)) for c in coordinates)
    return RowMajorLayout(owner, tuple(stride), offset)


def _cross_a_dimension(shape: torch.Size, coordinates: list[list[int]], sizes: list[int]) -> bool:
    """Whether a step leads out of a dimension of the owner.

    `coordinates` has those of each step, and of the first element.
    """
    lengths = [max(0, n - 1) for n in shape] + [1]
    ends = [sum(n * c[i] for n, c in zip(lengths, coordinates)) for i in range(len(sizes))]
    return any(end >= size for end, size in zip(ends, sizes))


def _coordinates(distance: int, steps: list[int]) -> list[int]:
    """Write a distance in memory as a number of steps along each dimension."""
    coordinates = []
    for step in steps:
        count, distance = divmod(distance, step)
        coordinates.append(count)
    return coordinates


def _is_unseen(tensor: torch.Tensor, owner: torch.Tensor) -> bool:
    """Whether only the two tensors see their memory, except a result that a formula of gradients saved."""
    storage = tensor.untyped_storage()
    if storage._cdata != owner.untyped_storage()._cdata:
        return False
    # NumPy arrays make the memory fixed
    if not storage.resizable() or storage.device.type == "cpu" and storage.is_shared():
        return False
    has_address = storage.device.type != "meta"  # a symbolic tensor has none
    if has_address and not owner.requires_grad and _is_exported(tensor, owner):
        return False
    others = torch._C._storage_Use_Count(storage._cdata) - 1 - (1 if tensor is owner else 2)
    return others <= 0 or others == _saved_results(owner.grad_fn, storage._cdata)


def _is_exported(tensor: torch.Tensor, owner: torch.Tensor) -> bool:
    """Whether C++ code holds one of the two tensors, as a DLPack capsule does, which knows their address.

    A formula of gradients may hold them as well, but torch exports no tensor that requires a gradient.
    """
    if tensor is owner:
        return tensor._use_count() > 1
    return tensor._use_count() > 1 or owner._use_count() > 2  # the view holds its base


def _saved_results(formula: Any, memory: int) -> int:
    """Return how many tensors of this memory a formula of gradients has saved."""
    names = [name for name in dir(formula) if name.startswith("_saved_result")]
    return sum(map(_is_in, itertools.repeat(formula), names, itertools.repeat(memory)))


def _is_in(formula: Any, name: str, memory: int) -> bool:
    try:
        saved = getattr(formula, name)
        return isinstance(saved, torch.Tensor) and saved.untyped_storage()._cdata == memory
    except RuntimeError:  # backward() has freed it
        return False
