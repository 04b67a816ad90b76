"""What a run writes before it can no longer fail, kept so that an error or a signal takes it back.

The generated function of a program (program/codegen.py) makes one log for each run:

    log = UndoLog()
    try:
        keep(log, [running_mean, running_var])
        ... operators that may fail ...
        log.done.extend(map(fused_sgd_, (weights,), (gradients,)))
    except BaseException:
        if not log.done: log.roll_back()
        raise

`done` has an element for each operator of the commit that has run. A signal is handled between two bytecodes,
so a list that is extended by a map of a C function tells for certain whether the operator ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ..._signals import completed, held
from .copies import copy_back


class UndoLog:
    """The values of before the run, of what one run has written or may write."""

    __slots__ = ("done", "generators", "held", "kept")

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.kept: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []  # (what puts it back, its arguments)
        self.generators: list[tuple[torch.Generator, torch.Tensor]] = []
        self.held: held | None = None

    def roll_back(self) -> None:
        """Put everything back, in the reverse order of the writes."""
        completed(self._restore)

    def _restore(self) -> None:
        for generator, state in self.generators:
            generator.set_state(state)
        with torch.no_grad():
            for put_back, arguments in reversed(self.kept):
                put_back(*arguments)
        self.generators, self.kept = [], []  # the traceback of the error holds this log

    def hold(self) -> None:
        """Let signals wait for `release`, because what follows cannot be taken back."""
        self.held = held()
        self.held.__enter__()
        self.done.append(None)

    def finishing(self) -> Finishing:
        """Return a block for the rest of a commit, after a signal has interrupted it."""
        return Finishing()

    def release(self) -> None:
        if self.held is not None:
            self.held.__exit__()


class Finishing(held):
    """A `held` block that begins whatever other handlers raise, because an error is on its way already."""

    def __enter__(self) -> None:
        while True:
            try:
                return super().__enter__()
            except BaseException:
                continue


def keep(log: UndoLog, tensors: Sequence[torch.Tensor]) -> None:
    """Copy tensors."""
    log.kept.append((_copy_back, (tensors, [tensor.clone() for tensor in tensors])))


def keep_vectors(log: UndoLog, vectors: list[torch.Tensor]) -> None:
    """Copy vectors of one dtype together, because a call costs more than a small copy."""
    log.kept.append((_copy_vectors_back, (vectors, torch.cat(vectors))))


def keep_scalars(log: UndoLog, scalars: list[torch.Tensor]) -> None:
    """Copy tensors of shape () and one dtype together."""
    log.kept.append((_copy_back, (scalars, torch.stack(scalars))))


def keep_items(
    log: UndoLog, read: Callable[..., Any], write: Callable[..., Any], tensor: torch.Tensor, *index: Any
) -> None:
    """Copy the items of a large tensor that an operator writes.

    If an index is out of range, the operator raises in a moment, maybe after it has written some items.
    """
    try:
        items = read(tensor, *index)
    except (IndexError, RuntimeError):
        keep(log, [tensor])
    else:  # the program may write the index as well
        log.kept.append((write, (tensor, *tree_map_only(torch.Tensor, torch.clone, index), items)))


def keep_generators(log: UndoLog, generators: Sequence[torch.Generator]) -> None:
    log.generators = [(generator, generator.get_state()) for generator in generators]


def _copy_back(tensors: Sequence[torch.Tensor], values: Iterable[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values):
        copy_back(tensor, value)


def _copy_vectors_back(vectors: Sequence[torch.Tensor], values: torch.Tensor) -> None:
    _copy_back(vectors, values.split([vector.shape[0] for vector in vectors]))
