"""The reads of one capture: a collaborator for each noun that instrumented code reads.

    self.scale               # an attribute:  AttributeReads
    factor                   # a name:        NameReads
    self.table["key"]        # a value:       ValueReads, what containers, objects and functions hold
    tensor.requires_grad     # a tensor:      TensorReads
    isinstance(x, Base)      # a class:       ClassReads, what an object gets from its class
    torch.get_num_threads()  # an answer:     AnswerReads, what the interpreter, torch or a class tells
    sorted(values)           # a call:        CallReads, what a function in C receives; it asks the others
    inspect.signature(f)     # foreign code:  ForeignReads, of Python whose own reads are not observed

Each of them adds guards to `Notes`, or says there what has no guard. `WriteNotes` has what build() writes. A
collaborator knows those above it in `Reads.__init__` only. So none refers back, and an error of build() that
holds the reads makes no cycle with weights in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .answers import AnswerReads
from .attribute_reads import AttributeReads
from .call_reads import CallReads
from .class_reads import ClassReads
from .foreign_reads import ForeignReads
from .name_reads import NameReads
from .notes import Notes
from .tensor_reads import TensorReads
from .value_reads import ValueReads
from .write_notes import WriteNotes

if TYPE_CHECKING:
    from torch.nn import Module


class Reads:
    """What one capture reads: guards in the order of their first reads, writes, and what has no guard."""

    def __init__(
        self, active: Callable[..., Any], on_module: Callable[[Module], None], ends_capture: bool
    ) -> None:
        """`ends_capture`: a read that no guard can follow raises, so that the call runs in eager mode."""
        self.active = active
        self.notes = Notes(on_module, ends_capture)
        self.writes = WriteNotes(self.notes)
        self.names = NameReads(self.notes)
        self.tensors = TensorReads(self.notes)
        self.answers = AnswerReads(self.notes)
        self.classes = ClassReads(self.notes, self.answers)
        self.values = ValueReads(self.notes, self.writes, self.tensors, self.answers)
        self.attributes = AttributeReads(self.notes, self.tensors, self.classes, self.values)
        self.foreign = ForeignReads(
            self.notes, self.writes, self.names, self.answers, self.classes, self.values
        )
        self.calls = CallReads(
            self.notes,
            self.writes,
            self.tensors,
            self.answers,
            self.classes,
            self.values,
            self.attributes,
            self.foreign,
        )

    def ids_of_own_containers(self) -> set[int]:
        """Return the ids of the containers in which the reads are noted: no object outside."""
        parts = [part for part in vars(self).values() if part is not self.active]
        return {id(value) for part in (self, *parts) for value in vars(part).values()}
