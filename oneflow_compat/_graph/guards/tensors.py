"""The check before each call that the named tensors of a program are those that it reads.

Each tensor of a module or optimizer still lies under all of its names, is still trained or not, and has the
same shape and strides, which `p.data = p.data.t()` changes in place: one loop over versions of containers and
over layouts (checkers.py). A tensor that was replaced by one with the same metadata is read
from then on, unless it is trained. Their memory is compared, too: `p.data = q.data` ties two parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..._global.marks import OfSeveralRanks
from ..program.locations import StateEntry
from ..program.python_values import get_item, tensor_meta
from . import sources
from .checkers import checker_of
from .layouts import has_plain_layout
from .python_guards import Failure
from .sources import Guard

if TYPE_CHECKING:
    from ..program.locations import Container
    from ..program.program import Slot


@dataclass(frozen=True, eq=False)
class TensorSlot:
    """A slot of a named tensor: its name in the prologue, and the container of the live tensor."""

    name: str
    container: Container
    key: Any
    slot: Slot

    @property
    def live(self) -> torch.Tensor:
        tensor: torch.Tensor = self.container[self.key]
        return tensor


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
