"""The check in each call that inputs share memory as they did at the capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..program.locations import Argument, Gradient, StateEntry
from ..program.memory import storage_of, view_of
from ..program.program import Program
from ..program.python_values import get_item
from ..program.writes import overlapping_slots
from .call_tests import separate_test, unknown


class MemoryIdentity:
    """The check in each call that inputs share memory as they did at the capture.

    An argument may be a view of a buffer that the program writes, or two arguments may overlap. Separate
    memory, the ordinary case, is told by one loop over the storages of the arguments.
    """

    def __init__(
        self,
        program: Program,
        overlaps: frozenset[tuple[int, int]],
        merged: Sequence[tuple[int, StateEntry]],
        merged_free: Sequence[tuple[int, torch.Tensor]],
    ) -> None:
        """`overlaps`: pairs of slots that overlap in memory, one of them written.

        `merged`: (slot, another named tensor in the memory of its tensor). `merged_free`: the same for
        tensors without a name.
        """
        self.slots, self.expected, self.merged, self.merged_free = (
            program.slots,
            overlaps,
            merged,
            merged_free,
        )
        indices = [i for i, slot in enumerate(program.slots) if slot.shape is not None]
        self.arguments = [i for i in indices if isinstance(program.slots[i].location, (Argument, Gradient))]
        written = [i for i in indices if program.slots[i].written]
        self.written_state = [i for i in written if i not in self.arguments]
        self.writes_arguments = len(written) > len(self.written_state)
        self.has_merged = bool(merged or merged_free)
        self.is_needed = bool(written or self.has_merged)
        self.state_replaced()

    def state_replaced(self) -> None:
        """Look again at the memory of the state in the next call, and at its overlaps."""
        self._storages: set[int] | None = None
        # True for separate memory, the ordinary case. Otherwise holds() looks closer
        self.is_separate: Callable[[Sequence[Any]], bool] = unknown

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the values of the slots share memory as at the capture."""
        if self._storages is None:
            if not self._merged_hold(values) or overlapping_slots(self.slots, values) != self.expected:
                return False
            written = (storage_of(values[i]) for i in self.written_state)
            self._storages = {storage for storage in written if storage is not None}
            if not self.expected and not self.has_merged:
                self.is_separate = separate_test(self.arguments, self._storages, self.writes_arguments)
            return True
        storages = [storage_of(values[i]) for i in self.arguments]
        separate = self._storages.isdisjoint(storages) and not (
            self.writes_arguments and len({*storages}) < len(storages)
        )
        if separate and not self.expected:
            return not self.has_merged or self._merged_hold(values)
        return self._merged_hold(values) and overlapping_slots(self.slots, values) == self.expected

    def _merged_hold(self, values: Sequence[Any]) -> bool:
        """Whether tensors that are one slot of the program still are one memory."""
        return all(
            get_item(entry.container, entry.key) is entry.tensor
            and view_of(entry.tensor) == view_of(values[i])
            for i, entry in self.merged
        ) and all(view_of(tensor) == view_of(values[i]) for i, tensor in self.merged_free)
