"""Inputs of a program that share memory.

Passes and compilers take the inputs of a program for separate memory. If the program writes an input that
overlaps with another one, it has to run operator by operator, as eager does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import compute_overlapping_tensors

from ..._global.tensor import memory_of
from .program import Slot


def storage_of(value: Any) -> int | None:
    """An identity of the memory of a tensor; None for a value that has no storage."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    identity: int = memory_of(value).untyped_storage()._cdata
    return identity


def overlapping_slots(slots: Sequence[Slot], values: Sequence[Any]) -> frozenset[tuple[int, int]]:
    """Return the pairs of slots that overlap in memory, with at least one slot of each pair written."""
    by_storage: dict[int, list[int]] = {}
    for index, value in enumerate(values):
        storage = storage_of(value)
        if storage is not None:
            by_storage.setdefault(storage, []).append(index)
    return frozenset(
        pair
        for indices in by_storage.values()
        for pair in itertools.combinations(indices, 2)
        if any(slots[i].written for i in pair) and _overlap(*(memory_of(values[i]) for i in pair))
    )


def _overlap(*tensors: torch.Tensor) -> bool:
    return bool(compute_overlapping_tensors([tensor.detach() for tensor in tensors], symbolic=False))
