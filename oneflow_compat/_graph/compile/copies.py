"""Copies of the tensors of a call that share memory as the tensors themselves do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

_ALIGNMENT = 64  # bytes; a copy keeps the offset of its tensor within a cache line


class CallState:
    """What a call may change: the tensors that it gets, and the random generators of their devices."""

    def __init__(self, values: Sequence[Any], positions: Iterable[int] | None = None) -> None:
        """`positions`: the tensors to copy, and those that share their memory. None means all."""
        self.values = values
        self.copies = dict(_copies(values, None if positions is None else set(positions)))
        self.generators = generator_states(values)

    def fresh_values(self, written: Iterable[int]) -> list[Any]:
        """Return values for another run: new copies of the `written` ones, and the kept ones of the rest.

        A tensor without a copy is the tensor of the call.
        """
        kept = [self.copies.get(i, value) for i, value in enumerate(self.values)]
        again = dict(_copies(kept, set(written)))
        return [again.get(i, value) for i, value in enumerate(kept)]

    def restore(self) -> None:
        """Write the copies back into the tensors of the call, and restore the generators."""
        for i, copy in self.copies.items():
            copy_back(self.values[i], copy)
        set_generator_states(self.generators)


def generator_states(values: Sequence[Any]) -> dict[torch.device, torch.Tensor]:
    """Return the states of the default generators of the CPU and of the devices of tensors."""
    states = {torch.device("cpu"): torch.default_generator.get_state()}
    for device in {v.device for v in values if isinstance(v, torch.Tensor) and v.device.type == "cuda"}:
        states[device] = torch.cuda.get_rng_state(device)
    return states


def set_generator_states(states: dict[torch.device, torch.Tensor]) -> None:
    for device, state in states.items():
        if device.type == "cuda":
            torch.cuda.set_rng_state(state, device)
        else:
            torch.default_generator.set_state(state)


def have_equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same values. NaN equals NaN."""
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def copy_back(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Write a value back, but leave the version counter of a tensor that nobody wrote."""
    if not have_equal_bits(tensor, value) or not torch.equal(_signs(tensor), _signs(value)):
        whole(tensor).copy_(whole(value))


def _signs(value: torch.Tensor) -> torch.Tensor:
    """Return the signs of a floating or complex tensor, in which -0.0 differs from 0.0."""
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    return torch.signbit(value.float() if value.is_floating_point() else value)


def copy_size(values: Sequence[Any], positions: Iterable[int]) -> int:
    """Return how many bytes copies of these tensors take."""
    return sum(end - start for start, end, _ in ranges(values, set(positions)))


def _copies(values: Sequence[Any], positions: set[int] | None) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield (position, copy). Tensors that overlap in memory get copies that overlap alike."""
    for start, end, members in ranges(values, positions):
        first = values[members[0]]
        if len(members) == 1 and (first.is_conj() or first.is_neg() or not first.numel()):
            yield members[0], first.detach().clone()
            continue
        memory = bytes_at(first, start, end - start).clone().untyped_storage()
        for i in members:
            value = values[i]
            offset = (value.data_ptr() - start) // value.element_size()
            copy = torch.empty(0, dtype=value.dtype, device=value.device)
            yield i, copy.set_(memory, offset, value.shape, value.stride())


def ranges(values: Sequence[Any], positions: set[int] | None) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (start, end, positions) of each range of memory that overlapping tensors cover.

    Only ranges with one of the positions are yielded, because a write reaches all tensors of its range.
    """
    extents = sorted(
        (*_extent(v), i) for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.numel()
    )
    empty = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and not v.numel()]
    merged: list[tuple[int, int, list[int]]] = []
    for start, end, i in extents:
        if merged and start < merged[-1][1] and values[i].device == values[merged[-1][2][0]].device:
            before = merged[-1]
            merged[-1] = (before[0], max(end, before[1]), [*before[2], i])
        else:
            merged.append((start, end, [i]))
    for start, end, members in [*merged, *((0, 0, [i]) for i in empty)]:
        if positions is None or not positions.isdisjoint(members):
            yield start, end, members


def _extent(value: torch.Tensor) -> tuple[int, int]:
    """Return the first and the last address of a tensor's elements, the first one rounded down."""
    first, storage = value.data_ptr(), value.untyped_storage().data_ptr()
    span = sum((n - 1) * step for n, step in zip(value.shape, value.stride())) + 1
    return max(storage, first - first % _ALIGNMENT), first + span * value.element_size()


def bytes_at(value: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """Return memory as bytes; a part of it belongs to `value`."""
    storage = value.untyped_storage()
    first = start - storage.data_ptr()
    if first + count > storage.nbytes():  # several storages, for example of two NumPy views
        return torch.frombuffer((ctypes.c_ubyte * count).from_address(start), dtype=torch.uint8)
    view = torch.empty(0, dtype=torch.uint8, device=value.device)
    return view.set_(storage, first, (count,), (1,))


def whole(value: torch.Tensor) -> torch.Tensor:
    """Return a view of a tensor's elements in which each element of memory occurs once."""
    for dim, (size, step) in enumerate(zip(value.shape, value.stride())):
        if step == 0 and size > 1:
            value = value.narrow(dim, 0, 1)
    return value.detach()


def mapped(values: Sequence[Any], function: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    """Return the values with `function` applied to floating tensors. Tensors that overlap keep doing so."""
    results = list(values)
    for _, _, members in ranges(values, None):
        floating = [i for i in members if values[i].is_floating_point() or values[i].is_complex()]
        if len(members) == 1 and floating:
            results[members[0]] = function(values[members[0]].detach())
        elif floating:
            _map_together(results, members, function)
    return results


def _map_together(results: list[Any], members: list[int], function: Any) -> None:
    """Apply a function to the memory that several tensors of one dtype share, and view the result alike."""
    values = [results[i] for i in members]
    if len({v.dtype for v in values}) > 1:
        return  # views of other dtypes: their bits would mean something else
    start, end = min(_extent(v)[0] for v in values), max(_extent(v)[1] for v in values)
    new = function(bytes_at(values[0], start, end - start).view(values[0].dtype))
    for i, value in zip(members, values):
        offset = (value.data_ptr() - start) // value.element_size()
        results[i] = new.as_strided(value.shape, value.stride(), offset)
