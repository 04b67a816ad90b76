"""Saving objects that hold global tensors of several ranks: the ranks agree, gather, and then write.

While tensors are sent, only the writing rank holds a lock or writes a file that another rank waits for. Its
errors are kept until every tensor has been gathered, and then raised on every rank.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .collectives import checking, nested
from .failures import transfer
from .marks import OfSeveralRanks
from .process_group import several
from .tensor import full_tensor, of_several_ranks

_gatherings: list[Any] = []  # the gatherings in progress


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor as a plain tensor, gathered now or already for the save in progress."""
    return _gatherings[-1].take(tensor) if _gatherings else full_tensor(tensor)


def save(obj: object, write: Callable[[], Any], destination: int | None, about: object) -> Any:
    """Run `write()`, which saves `obj`, on every rank or on rank `destination`.

    It succeeds on every rank or raises on every rank. An object without global tensors of several ranks is
    saved by each rank without the others.
    """
    tensors = _global_tensors(obj) if several() else []
    if not tensors:
        return write()
    with checking("save", sends=True) as request:
        request.must_match(global_dst_rank=destination, about=about)
        request.send_message([tuple(map(str, of_several_ranks().about(t).values())) for t in tensors])
    _check_same(request.messages)
    gathering = Gathering(tensors)
    if destination is None:
        gathering.finish(keep=True)
    with checking("save", sends=True):
        _gatherings.append(gathering)
        try:
            write()
        finally:
            _gatherings.pop()
            gathering.finish(keep=False)
    return None


def _check_same(messages: list[Any]) -> None:
    """Compare the tensors of all ranks on every rank, so that all ranks raise."""
    for rank, tensors in enumerate(messages):
        if tensors != messages[0]:
            position = next(
                (i for i, (a, b) in enumerate(zip(tensors, messages[0])) if a != b),
                min(len(tensors), len(messages[0])),
            )
            descriptions = [
                f"rank {r} has {m[position] if position < len(m) else 'none'}"
                for r, m in ((0, messages[0]), (rank, tensors))
            ]
            raise RuntimeError(
                f"save: the ranks save different objects: of global tensor number {position},"
                f" {' and '.join(descriptions)}"
            )


class Gathering:
    """The global tensors of one object, gathered in the same order on every rank.

    The order does not depend on the ranks' use of the tensors.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.pending = list(tensors)
        self.gathered: dict[int, torch.Tensor] = {}

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the full tensor as a plain one. The tensors before it in the order are gathered, too."""
        while id(tensor) not in self.gathered:
            if not self.pending:
                raise RuntimeError(
                    "save: an object makes another global tensor each time it is pickled; save the tensor"
                    " itself"
                )
            self._gather(keep=True)
        return self.gathered[id(tensor)]

    def finish(self, keep: bool) -> None:
        """Gather the rest, as the other ranks do."""
        while self.pending:
            self._gather(keep)

    def _gather(self, keep: bool) -> None:
        tensor = self.pending.pop(0)
        with nested(), transfer("save"):
            full = full_tensor(tensor)
        if keep:
            self.gathered[id(tensor)] = full


class _Finder(pickle.Pickler):
    """A pickler that collects global tensors of several ranks and pickles no values of tensors."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.tensors: list[Any] = []

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, OfSeveralRanks):
            self.tensors.append(obj)
        return (str, ()) if isinstance(obj, torch.Tensor) else NotImplemented


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)


def _global_tensors(obj: object) -> list[Any]:
    """Return the global tensors of several ranks that saving `obj` reaches.

    An object that cannot be pickled is refused later, by the format.
    """
    finder = _Finder()
    try:
        finder.dump(obj)
    except Exception:
        seen = {id(t) for t in finder.tensors}
        finder.tensors += [t for t in _in_containers(obj) if id(t) not in seen]
    return finder.tensors


def _in_containers(obj: object) -> Iterable[Any]:
    """Return the global tensors in dicts, lists, tuples and modules, each once."""
    from torch.utils import _pytree as pytree

    leaves = [
        leaf
        for x in pytree.tree_leaves(obj)
        for leaf in ([*x.parameters(), *x.buffers()] if isinstance(x, torch.nn.Module) else [x])
    ]
    return {id(t): t for t in leaves if isinstance(t, OfSeveralRanks)}.values()
