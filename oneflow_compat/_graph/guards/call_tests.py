"""Tests of the arguments of a call in C: are they like those of the program, and where do they lie in memory?

A test answers False where it does not know, so that Python looks closer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from . import native
from .layouts import argument_offsets, is_compared_with_others

_VALUES = (int, bool, str, type(None))
_Offsets = tuple[int, int, int, int, int]
_PROBES = 3


def alike_test(args: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], bool]:
    """Return a test whether other arguments have the signature of these.

    It compares the metadata of tensors where they lie, and the values of other arguments.
    """
    offsets = _probed_offsets(native.probed_features())
    if offsets is None or not all(type(a) in _VALUES or _is_comparable(a) for a in args):
        return unknown
    return _alike(args, offsets)


def separate_test(
    positions: Iterable[int], written: Iterable[int], writes_arguments: bool
) -> Callable[[Sequence[Any]], bool]:
    """Return a test whether the arguments at some positions of a program's values lie in memory of their own.

    `written` are the addresses of the storages that the program writes. If it writes arguments, no two of
    them may share a storage, either.
    """
    offsets = _probed_offsets(native.probed_features())
    if offsets is None:
        return unknown
    test: Callable[[Sequence[Any]], bool] = native.library().memory(
        tuple(positions), tuple(written), writes_arguments, torch.Tensor, offsets
    )
    return test


def unknown(values: object) -> bool:
    """Tell that Python has to look closer."""
    return False


def _is_comparable(value: object) -> bool:
    """Whether the dispatch keys of a tensor and the words that are compared tell all of its metadata."""
    return type(value) is torch.Tensor and is_compared_with_others(value) and not value.is_complex()


def _alike(args: tuple[Any, ...], offsets: _Offsets) -> Callable[[tuple[Any, ...]], bool]:
    test: Callable[[tuple[Any, ...]], bool] = native.library().arguments(
        args, torch.Tensor, torch.Tensor.requires_grad, offsets
    )
    return test


@functools.lru_cache(None)
def _probed_offsets(features: native.Features | None) -> _Offsets | None:
    """Return the offsets at which arguments are compared, if the test sees each difference."""
    offsets = argument_offsets() if features is not None and features.layouts is not None else None
    if offsets is None:
        return None
    # one probe in some processes fails, for a reason that was not found; False answers are safe, but slow
    return offsets if any(_sees_differences(offsets) for _ in range(_PROBES)) else None


def _sees_differences(offsets: _Offsets) -> bool:
    """Whether the test tells like arguments from other ones."""
    is_alike = _alike((torch.zeros(3, 2),), offsets)
    conjugate = torch.zeros(3, 2, dtype=torch.complex64).conj()  # another dispatch key tells it
    others = (
        torch.zeros(2, 3),
        torch.zeros(6),
        torch.zeros(2, 3).t(),
        torch.zeros(3, 2, dtype=torch.int32),
        torch.zeros(3, 2, device="meta"),
        torch.zeros(3, 2, requires_grad=True),
        torch.zeros(3, 2, requires_grad=True) * 2,
        torch.zeros(3, 2).to_sparse(),
    )
    works = is_alike((torch.ones(8)[2:].view(3, 2),)) and not any(is_alike((other,)) for other in others)
    return works and not _alike((conjugate.conj(),), offsets)((conjugate,))
