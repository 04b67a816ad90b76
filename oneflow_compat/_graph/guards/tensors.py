"""The guards that the named tensors of a program are those that it reads.

Each tensor of a module or optimizer still lies under all of its names, is still trained or not, and has the
same shape and strides, which `p.data = p.data.t()` changes in place: one loop over versions of containers and
over layouts (checkers.py). A tensor that was replaced by one with the same metadata is read from then on,
unless it is trained. Their memory is compared, too (memory.py): `p.data = q.data` ties two parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..._global.marks import OfSeveralRanks
from ..program.locations import StateEntry
from ..program.python_values import tensor_meta
from . import sources
from .adoption import TensorPlaces
from .failure import Failure
from .guard import Guard, Policy
from .guard_set import GuardSet, named_reads
from .layouts import has_plain_layout

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
    """The guards of the named tensors of one program."""

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
        self.training = training
        live = [tensor.live for tensor in tensors]
        indices = {id(tensor): index for index, tensor in enumerate(live)}
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
        self._guard(tensors, live)

    def bind(self, tensors: Sequence[TensorSlot]) -> None:
        """Take the same slots, resolved anew, for those to compare with what the program has read so far."""
        self._guard(tensors, [guard.value for guard in self._names])

    def _guard(self, tensors: Sequence[TensorSlot], expected: Sequence[torch.Tensor]) -> None:
        self._names = [
            _guard_of_name(t.container, t.key, now, t.slot.name, self._policy(t, now))
            for t, now in zip(tensors, expected)
        ]
        others = [
            _guard_of_name(container, key, expected[index], tensors[index].slot.name)
            for index, container, key in self.aliases
        ]
        reads = TensorPlaces(named_reads((now, t.container, t.key) for t, now in zip(tensors, expected)))
        self.guards = GuardSet([*self._names, *others, *self._guards_of_layouts()], reads)

    def _policy(self, tensor: TensorSlot, now: torch.Tensor) -> Policy:
        is_trained = self.training and tensor.slot.role == "param"
        return Policy.FAIL if is_trained or isinstance(now, OfSeveralRanks) else Policy.ADOPT

    def _guards_of_layouts(self) -> Iterator[Guard]:
        for guard in self._names:
            if has_plain_layout(guard.value):
                metadata = tensor_meta(guard.value)
                yield Guard(sources.LAYOUT, guard.value, metadata, guard.name, policy=Policy.FAIL)
        others = [(t, trained) for _, t, trained in self.parameters if not has_plain_layout(t)]
        for is_trained in (True, False):
            tensors = tuple(tensor for tensor, was_trained in others if was_trained is is_trained)
            if tensors:
                source = sources.Flag("requires_grad")
                yield Guard(source, tensors, is_trained, "requires_grad", policy=Policy.FAIL)

    def check(self) -> Failure | None:
        """Take the tensors that lie there now for those to read. Return the one that is not accepted."""
        failure = self.guards.check(lambda index, tensor: None)
        if failure is None:
            return None
        for name, parameter, was_trained in self.parameters:
            if parameter.requires_grad is not was_trained:
                return Failure(f"requires_grad of {name}")
        return Failure(failure.label)


def _guard_of_name(
    container: Container, key: object, tensor: torch.Tensor, name: str, policy: Policy = Policy.ADOPT
) -> Guard:
    source = sources.Item if isinstance(container, dict) else sources.Element
    return Guard(source(key), container, tensor, name, policy=policy)
