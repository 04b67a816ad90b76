"""The agreement of the ranks on each call of a graph that works on global tensors or calls collectives.

Before such a call runs, the ranks exchange two digests: of the program that serves the call on this rank, and
of the numbers that it reads anew in each call, such as learning rates. If they are equal, the call runs. If a
rank has no program for the call, every rank captures one, and the ranks compare what they captured. If they
differ, every rank raises the same error before data is sent and before anything changes, so that the ranks
stay in step.

With several ranks, each set of sizes has its own program, so the digest of a program includes the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._global.collectives import RanksDiffer, begin_comparison, checking, compare, digest_of, raised_by_all
from .._global.failures import names
from .._global.marks import OfSeveralRanks
from .._global.process_group import CollectiveError
from .program.shared_calls import SharedCalls, first_difference

if TYPE_CHECKING:
    from .call.entry import Entry

_NO_PROGRAM = 0
_UNSHARED = 1  # a program that takes no part, where those of other ranks do
_NUMBERS = frozenset([int, float, bool])
_BITS = 0xFFFFFFFFFFFFFF
Found = tuple["Entry", tuple[Any, ...]]  # an entry that serves a call, and the values of its slots


@dataclass(frozen=True)
class CallFacts:
    """What a rank says about a call: names and values, which may differ."""

    program: SharedCalls | None
    numbers: tuple[tuple[str, str], ...]


def agree(name: str, found: Found | None, is_run: bool) -> None:
    """Compare the program that serves a call with those of the ranks. Raise RanksDiffer if they differ.

    `is_run`: the program runs next. If it can, it computes during the exchange. It raises RanksDiffer itself
    before it sends data or changes anything.
    """
    header = (_NO_PROGRAM, 0) if found is None else _header(found)
    call = _call(name) if is_run else f"the compilation of graph {name}"
    if found is not None and is_run and found[0].waits_for_ranks:
        begin_comparison(call, *header)
    else:
        compare(call, *header)


def raise_difference(name: str, found: Found | None, differ: RanksDiffer) -> None:
    """Raise what every rank raises, unless every rank has to capture because some have no program."""
    if found is None or any(program == _NO_PROGRAM for program, _ in differ.integers):
        return
    _raise_difference(_call(name), found)


def _call(name: str) -> str:
    return f"graph {name}"


def captured_by_all(name: str, capture: Callable[[], Found], discard: Callable[[], None]) -> Found:
    """Return what `capture` returns, if it succeeds on every rank and the ranks captured the same program.

    Else raise on every rank. `discard` undoes a capture.
    """
    call = f"the capture of graph {name}"
    try:
        with checking(call):
            found = capture()
        compare_captures(name, found)
    except BaseException:
        discard()
        raise
    return found


def compare_captures(name: str, found: Found) -> None:
    """Raise CollectiveError on every rank unless the ranks captured the same program for the same numbers."""
    call = f"the capture of graph {name}"
    try:
        compare(call, *_header(found))
    except RanksDiffer:
        _raise_difference(call, found)


def _header(found: Found) -> tuple[int, int]:
    shared = found[0].shared
    return shared.digest if shared is not None else _UNSHARED, _hash(_values_of_numbers(found))


def _values_of_numbers(found: Found) -> tuple[Any, ...]:
    entry, values = found
    return tuple(_plain(values[i]) for i in entry.number_slots)


def _plain(value: Any) -> Any:
    """Return the number of a tensor on the CPU. On another device, return 0, because a read would wait."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.item() if value.device.type == "cpu" and not isinstance(value, OfSeveralRanks) else 0


def _numbers(found: Found) -> tuple[tuple[str, str], ...]:
    slots = found[0].program.slots
    named = zip(found[0].number_slots, _values_of_numbers(found))
    return tuple((slots[i].name, repr(value)) for i, value in named)


def _hash(values: tuple[Any, ...]) -> int:
    """Return a number that is the same in every process for equal numbers and texts."""
    if all(type(value) in _NUMBERS for value in values):
        return hash(values) & _BITS  # unlike that of a text, it does not depend on the process
    return digest_of(repr(values))


def _raise_difference(call: str, found: Found) -> None:
    """Exchange the facts and raise the error that shows how they differ.

    Raise nothing if only their digests differ, as those of two NaN do.
    """
    with checking(call, sends=True) as request:
        request.send_message(CallFacts(found[0].shared, _numbers(found)))
    everyones: Sequence[CallFacts] = request.messages
    differences = _program_differences([f.program for f in everyones if f.program is not None])
    differences += _value_differences([dict(f.numbers) for f in everyones])
    if differences:
        raise raised_by_all(
            CollectiveError(
                f"{call}: the ranks disagree, so no rank ran the call. {' '.join(differences)} Every rank"
                " has to make the same call, and to run the same build() with the same values"
            )
        )


def _program_differences(programs: Sequence[SharedCalls]) -> list[str]:
    """Return a sentence about the first line in which the programs of the ranks differ, or nothing."""
    if len({program.digest for program in programs}) < 2:
        return []
    lines = first_difference(programs)
    ranks_of = _ranks_by([line for line, _ in lines])
    places = dict.fromkeys(lines[ranks[0]][1] for ranks in ranks_of.values())
    each = "; ".join(f"{names(ranks)} has {line}" for line, ranks in ranks_of.items())
    at = "".join(f"\n  {place}" for place in places if place)
    return [f"Their programs differ: {each}.{at}{chr(10) + ' ' if at else ''}"]


def _value_differences(values: Sequence[dict[str, str]]) -> list[str]:
    """Return a sentence about each value that differs between the ranks."""
    sentences = []
    for name in dict.fromkeys(name for of_rank in values for name in of_rank):
        ranks_of = _ranks_by([of_rank.get(name, "missing") for of_rank in values])
        if len(ranks_of) > 1:
            each = " and ".join(f"{value} on {names(ranks)}" for value, ranks in ranks_of.items())
            sentences.append(f"{name} is {each}.")
    return sentences


def _ranks_by(values: Sequence[str]) -> dict[str, list[int]]:
    ranks_of: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks_of.setdefault(value, []).append(rank)
    return ranks_of
