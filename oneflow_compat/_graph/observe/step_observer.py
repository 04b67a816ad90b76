"""Observe what step() of the optimizers reads besides parameters, options and state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch.optim import optimizer as optimizer_module

from ..guards.sources import CONTENTS, Item
from ..guards.values import attributes_of
from .observer import Observer

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from .hooks.reads import Reads


# guards/optimizers.py compares these; schedulers and step() itself count the calls
_COMPARED_ELSEWHERE = ("param_groups", "state", "step", "_opt_called", "_step_count")


class StepObserver(Observer):
    """A context of each step(). Groups, parameters and state have tests of their own before each call."""

    _is_of_build = False

    def __init__(self, active: Callable[..., Any], ends_capture: bool) -> None:
        super().__init__(active, lambda module: None, ends_capture, (optimizer_module,))

    def leave_out_state(self, optimizers: Sequence[Optimizer]) -> None:
        """Make no guards of what guards/optimizers.py compares."""
        leave_out_state(self.reads, optimizers)


def leave_out_state(reads: Reads, optimizers: Sequence[Optimizer]) -> None:
    """Make no guards of the groups, parameters and state of optimizers, which have tests of their own.

    Those tests are of these very objects, so no equal one may replace them.
    """
    for optimizer in optimizers:
        reads.notes.pin(optimizer)
        attributes = attributes_of(optimizer)
        reads.notes.written.update((Item(name), id(attributes)) for name in _COMPARED_ELSEWHERE)
        # hooks and C functions get the optimizer, and read single attributes at most
        reads.notes.seen.add((id(attributes), CONTENTS))
        reads.notes.leave_out(_nested(optimizer.param_groups))
        reads.classes.class_attribute(type(optimizer), type(optimizer).__mro__, "step", None)
    leave_out_new_state(reads, optimizers)


def leave_out_new_state(reads: Reads, optimizers: Sequence[Optimizer]) -> None:
    """The same for the state that step() has created. The options are not read: schedules follow."""
    containers = [container for optimizer in optimizers for container in _nested(optimizer.state)]
    reads.notes.leave_out(containers)
    reads.notes.state.update(map(id, containers))


def _nested(value: object) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for element in value.values() if isinstance(value, dict) else value:
            yield from _nested(element)
