"""The check in each call that inputs share memory as they did at the capture.

An argument may be a view of a buffer that the program writes, or two arguments may overlap. Separate memory,
the ordinary case, costs a set operation over the storages of the arguments.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ..program.captured import Guards
from ..program.locations import Argument
from ..program.program import Program
from ..program.python_values import get_item
from ..program.writes import overlapping_slots, storage_of


class MemoryIdentity:
    """Which slots of one program overlap."""

    def __init__(self, program: Program, guards: Guards) -> None:
        self.slots, self.expected, self.merged = program.slots, guards.overlaps, guards.merged
        indices = [i for i, slot in enumerate(program.slots) if slot.shape is not None]
        self.arguments = [i for i in indices if isinstance(program.slots[i].location, Argument)]
        written = [i for i in indices if program.slots[i].written]
        self.written_state = [i for i in written if i not in self.arguments]
        self.writes_arguments = len(written) > len(self.written_state)
        self.is_needed = bool(written or self.merged)
        self.state_replaced()

    def state_replaced(self) -> None:
        """Look again at the memory of the state in the next call, and at its overlaps."""
        self._storages: set[int | None] | None = None

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the values of the slots share memory as at the capture."""
        if self._storages is None:
            if not self._merged_hold(values) or overlapping_slots(self.slots, values) != self.expected:
                return False
            self._storages = {storage_of(values[i]) for i in self.written_state} - {None}
            return True
        storages = [storage_of(values[i]) for i in self.arguments]
        separate = self._storages.isdisjoint(storages) and not (
            self.writes_arguments and len({*storages}) < len(storages)
        )
        if separate and not self.expected:
            return not self.merged or self._merged_hold(values)
        return self._merged_hold(values) and overlapping_slots(self.slots, values) == self.expected

    def _merged_hold(self, values: Sequence[Any]) -> bool:
        """Whether tensors that are one slot of the program still are one memory."""
        return all(
            get_item(entry.container, entry.key) is entry.tensor and _is_same_memory(entry.tensor, values[i])
            for i, entry in self.merged
        )


def _is_same_memory(tensor: torch.Tensor, value: Any) -> bool:
    return (
        storage_of(tensor) == storage_of(value)
        and tensor.storage_offset() == value.storage_offset()
        and tensor.shape == value.shape
        and tensor.stride() == value.stride()
    )
