"""The check before each call that the named tensors of a program are those that it reads.

Each tensor of a module or optimizer still lies under all of its names, is still trained or not, and has the
same shape and strides, which `p.data = p.data.t()` changes in place: one loop over versions of containers and
over layouts (observe/guards/checkers.py). A tensor that was replaced by one with the same metadata is read
from then on, unless it is trained. Their memory is compared, too: `p.data = q.data` ties two parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..._global.marks import OfSeveralRanks
from ..observe import Failure, Guard, checker_of, has_plain_layout, separate_test, sources, unknown
from ..program.captured import Guards
from ..program.locations import Argument, Gradient, StateEntry
from ..program.program import Program
from ..program.python_values import get_item, tensor_meta
from ..program.writes import overlapping_slots, storage_of
from .prologue import TensorSlot

if TYPE_CHECKING:
    from ..program.locations import Container


class TensorIdentity:
    """The named tensors of one program."""

    def __init__(
        self,
        tensors: Sequence[TensorSlot],
        aliases: Sequence[tuple[torch.Tensor, Container, Any]],
        merged: Sequence[tuple[int, StateEntry]],
        training: bool,
    ) -> None:
        """`aliases`: (tensor, container, key) of each further name of a tensor.

        `merged`: (slot, another named tensor in the memory of its tensor).
        """
        self.tensors, self.training = tensors, training
        self.expected = [tensor.live for tensor in tensors]
        indices = {id(tensor): index for index, tensor in enumerate(self.expected)}
        self.aliases = [
            (indices[id(aliased)], container, key)
            for aliased, container, key in aliases
            if id(aliased) in indices
        ]
        named = [(slot.slot.role, slot.slot.name, slot.live) for slot in tensors]
        named += [(entry.role, entry.name, entry.tensor) for _, entry in merged]
        parameters = [(name, tensor) for role, name, tensor in named if training and role == "param"]
        # None of them is replaced while the program holds.
        self.parameters = [(name, tensor, tensor.requires_grad) for name, tensor in parameters]
        self._note()

    def bind(self, tensors: Sequence[TensorSlot]) -> None:
        """Take the same slots, resolved anew, for those to compare with what the program has read so far."""
        self.tensors = tensors
        self._note()

    def _note(self) -> None:
        self._metadata = [*map(tensor_meta, self.expected)]
        self.checker = checker_of([*self._guards()])

    def _guards(self) -> Iterator[Guard]:
        entries = [(t.container, t.key, now) for t, now in zip(self.tensors, self.expected)]
        entries += [(container, key, self.expected[index]) for index, container, key in self.aliases]
        for container, key, tensor in entries:
            source = sources.Item if isinstance(container, dict) else sources.Element
            yield Guard(source(key), container, tensor)
        for tensor in filter(has_plain_layout, self.expected):
            yield Guard(sources.LAYOUT, tensor, tensor_meta(tensor))
        others = [(t, trained) for _, t, trained in self.parameters if not has_plain_layout(t)]
        for is_trained in (True, False):
            tensors = tuple(tensor for tensor, was_trained in others if was_trained is is_trained)
            if tensors:
                yield Guard(sources.Flag("requires_grad"), tensors, is_trained)

    def check(self) -> Failure | None:
        """Take the tensors that lie there now for those to read. Return the one that is not accepted."""
        current = [get_item(tensor.container, tensor.key) for tensor in self.tensors]
        for tensor, before, now in zip(self.tensors, self.expected, current):
            if now is not before and not self._accepts(tensor, now):
                return Failure(tensor.slot.name)
        for index, container, key in self.aliases:
            if get_item(container, key) is not current[index]:
                return Failure(self.tensors[index].slot.name)
        for name, parameter, was_trained in self.parameters:
            if parameter.requires_grad is not was_trained:
                return Failure(f"requires_grad of {name}")
        for tensor, metadata, now in zip(self.tensors, self._metadata, current):
            if tensor_meta(now) != metadata:
                return Failure(tensor.slot.name)
        self.expected = current
        self._note()
        return None

    def _accepts(self, tensor: TensorSlot, now: object) -> bool:
        is_trainable = self.training and tensor.slot.role == "param"
        return isinstance(now, torch.Tensor) and not isinstance(now, OfSeveralRanks) and not is_trainable


# --------------------------------------------------------------------------- memory
class MemoryIdentity:
    """The check in each call that inputs share memory as they did at the capture.

    An argument may be a view of a buffer that the program writes, or two arguments may overlap. Separate
    memory, the ordinary case, is told by one loop over the storages of the arguments.
    """

    def __init__(self, program: Program, guards: Guards) -> None:
        self.slots, self.expected = program.slots, guards.overlaps
        self.merged, self.merged_free = guards.merged, guards.merged_free
        indices = [i for i, slot in enumerate(program.slots) if slot.shape is not None]
        self.arguments = [i for i in indices if isinstance(program.slots[i].location, (Argument, Gradient))]
        written = [i for i in indices if program.slots[i].written]
        self.written_state = [i for i in written if i not in self.arguments]
        self.writes_arguments = len(written) > len(self.written_state)
        self.has_merged = bool(self.merged or self.merged_free)
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
            get_item(entry.container, entry.key) is entry.tensor and _is_same_memory(entry.tensor, values[i])
            for i, entry in self.merged
        ) and all(_is_same_memory(tensor, values[i]) for i, tensor in self.merged_free)


def _is_same_memory(tensor: torch.Tensor, value: Any) -> bool:
    return (
        storage_of(tensor) == storage_of(value)
        and tensor.storage_offset() == value.storage_offset()
        and tensor.shape == value.shape
        and tensor.stride() == value.stride()
    )
