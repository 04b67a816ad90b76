"""Run a build() that is a whole training step of eager mode: it steps its optimizers, and owns gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..observe import leave_out_new_state, leave_out_state
from ..program.live_numbers import live_number
from .build import run_build
from .update.scalers_of_build import ScalersOfBuild
from .update.steps_of_build import find_early
from .values.number_inputs import PythonNumbers

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from .interfaces import CaptureInterface
    from .side_effects.gradients_of_call import GradientsOfCall
    from .side_effects.result_objects import Results


def run_step(capture: CaptureInterface, flat: list[Any], gradients: GradientsOfCall) -> Results:
    """Call build(), with what its optimizers, schedules and scalers do recorded."""
    update, steps = capture.update, capture.steps
    reads = steps.reads = capture.reads.reads
    steps.options, steps.assigned, steps.written = capture.options, reads.notes.assigned, reads.notes.written
    optimizers = [] if update is None else [optimizer for optimizer, _ in update.state.optimizers]
    leave_out_state(reads, optimizers)
    gradients.on_zero_grad = lambda owner: find_early(capture, owner)
    with gradients.observed(), steps.recorded(), ScalersOfBuild(update, reads.notes.renew).recorded():
        results = run_build(capture, flat)
    leave_out_new_state(reads, optimizers)
    _need_numbers_in_state(optimizers)
    capture.has_read_state = reads.notes.has_read_state
    return results


def _need_numbers_in_state(optimizers: Iterable[Optimizer]) -> None:
    """Ask numbers of the program for their values that the step put into state: `state[p]["call"] = n`."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                live = live_number(value)
                if live is not None and isinstance(live.numbers, PythonNumbers):
                    live.numbers.need(live)
