"""Results that are objects, and changes of objects among the arguments: made from the outputs of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..program.captured import ArgumentChanges, Effects, ObjectChange
from ..program.object_layouts import ATTRIBUTE, ITEM, layout_of
from ..program.object_trees import Rebuilding, flattened_arguments, has_objects, refers_to_arguments
from ..program.program import Program
from ..program.pytree import with_sizes


def uses_objects(program: Program, effects: Effects) -> bool:
    """Whether the results of a program are objects, or it changes objects among its arguments."""
    return effects.argument_changes is not None or has_objects(program.out_spec)


class ObjectResults:
    """The results of build() and the changes of arguments, which may share objects."""

    def __init__(self, program: Program, effects: Effects) -> None:
        self.spec, self.constants = with_sizes(program.out_spec), dict(program.out_constants)
        self.changes = effects.argument_changes
        self._change_count = 0 if self.changes is None else self.changes.output_count
        self._needs_arguments = self.changes is not None or refers_to_arguments(self.spec)

    def split(self, outputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the outputs before those that are assigned to arguments, and these."""
        count = len(outputs) - self._change_count
        return outputs[:count], outputs[count:]

    def results(
        self, outputs: Sequence[Any], changed: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the results of build(), after the arguments of the call have been changed."""
        call = (args, kwargs) if self._needs_arguments else ((), {})
        arguments = flattened_arguments(*call)
        leaves = [*_leaves(self.spec.num_leaves, self.constants, outputs)]
        if self.changes is not None:
            leaves += _leaves(
                self.changes.spec.num_leaves, dict(self.changes.constants), map(_state, changed)
            )
        rebuilding = Rebuilding(leaves, arguments.objects, arguments.leaves)
        results = rebuilding.value_of(self.spec)
        if self.changes is not None:
            _apply(self.changes, rebuilding.value_of(self.changes.spec), arguments.objects)
        return results


def _leaves(count: int, constants: dict[int, Any], outputs: Any) -> Iterator[Any]:
    values = iter(outputs)
    return (constants[index] if index in constants else next(values) for index in range(count))


def _state(value: Any) -> Any:
    """Return a value to keep: a view of a parameter requires a gradient."""
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _apply(changes: ArgumentChanges, values: Sequence[Any], objects: Sequence[Any]) -> None:
    assigned = iter(values)
    for change in changes.changes:
        target = objects[change.position]
        if change.is_deleted:
            _delete(change, target)
        else:
            _assign(change, target, next(assigned))


def _assign(change: ObjectChange, target: Any, value: Any) -> None:
    layout = layout_of(type(target))
    assert layout is not None, "an object without a layout was taken apart"
    if change.access == ITEM:
        layout.replace_items(target, value)
    else:
        layout.fill(target, [(change.access, change.key)], [value])


def _delete(change: ObjectChange, target: Any) -> None:
    if change.access == ATTRIBUTE:
        del object.__getattribute__(target, "__dict__")[change.key]
    else:
        change.key.__delete__(target)
