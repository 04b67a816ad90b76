"""Run a build() that is a whole training step of eager mode: it steps its optimizers, and owns gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..observe import leave_out_new_state, leave_out_state
from .build import run_build
from .update.scalers_of_build import ScalersOfBuild
from .update.steps_of_build import find_early

if TYPE_CHECKING:
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
    with gradients.observed(), steps.recorded(), ScalersOfBuild(update).recorded():
        results = run_build(capture, flat)
    leave_out_new_state(reads, optimizers)
    return results
