"""Boxes: rectangular parts of a tensor, as offsets and sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Box:
    """A rectangular part of a tensor."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def full(cls, shape: Sequence[int]) -> Box:
        """Return the box of the full tensor."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    def overlap(self, box: Box) -> Box | None:
        """Return the common part of two boxes, or None if it is empty."""
        offsets = tuple(map(max, zip(self.offsets, box.offsets)))
        ends = (min(a + n, b + m) for a, n, b, m in zip(self.offsets, self.sizes, box.offsets, box.sizes))
        sizes = tuple(end - begin for begin, end in zip(offsets, ends))
        return Box(offsets, sizes) if all(size > 0 for size in sizes) else None

    def inside(self, outer: Box) -> Box:
        """Return this box with offsets relative to a box that contains it."""
        return Box(tuple(a - b for a, b in zip(self.offsets, outer.offsets)), self.sizes)

    def slices(self) -> tuple[slice, ...]:
        """Return the slices that select the box."""
        return tuple(slice(begin, begin + size) for begin, size in zip(self.offsets, self.sizes))


def shard_box(shape: Sequence[int], grid: Sequence[int], nd_sbp: Sequence[Any], at: Sequence[int]) -> Box:
    """Return the part of a tensor that the rank at a coordinate of a grid has.

    The sizes are those of torch.chunk. Under broadcast and partial_sum a rank has the full extent.
    """
    offsets, sizes = [0] * len(shape), list(shape)
    for size, rule, index in zip(grid, nd_sbp, at):
        if rule._kind == "split":
            dim = rule._dim
            step = -(-sizes[dim] // size)
            begin = min(index * step, sizes[dim])
            offsets[dim] += begin
            sizes[dim] = min(step, sizes[dim] - begin)
    return Box(tuple(offsets), tuple(sizes))


def covers(shape: Sequence[int], boxes: Sequence[Box]) -> bool:
    """Whether the boxes are a grid that covers a tensor, each element once.

    Along each dimension, the intervals of the boxes must be adjacent, and each combination must occur.
    """
    if not math.prod(shape):
        return not boxes
    combinations = 1
    for dim, size in enumerate(shape):
        intervals = sorted({(box.offsets[dim], box.sizes[dim]) for box in boxes})
        end = 0
        for begin, length in intervals:
            if begin != end or length < 1:
                return False
            end += length
        if end != size:
            return False
        combinations *= len(intervals)
    return combinations == len(boxes) == len(set(boxes))
