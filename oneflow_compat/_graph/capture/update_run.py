"""Record the update that a build() leaves to the graph: unscaling, clipping, and step() of the optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import no_error_is_caught
from .patches.random_state import python_samples
from .update.loss_scaling import resolve_scaler
from .update.new_state import adopt_new_state
from .update.optimizer_state import foreign_keys_of, refuse_foreign_state, take_foreign_state
from .update.step import Update

if TYPE_CHECKING:
    from .interfaces import CaptureInterface


def run_update(capture: CaptureInterface) -> None:
    """Record the update of the optimizers of the graph, if it has any."""
    state = capture.state
    scaler = resolve_scaler(capture.definition.grad_scaler)
    if not state.optimizers:
        return
    live_options = capture.assumptions.live_options
    update = capture.update = Update(
        capture.recorder, state, capture.config, scaler, live_options, capture.options.nodes
    )
    if capture.step_reads is not None:
        capture.step_reads.leave_out_state([optimizer for optimizer, _ in state.optimizers])
        update.observed = capture.step_reads
    capture.aside = take_foreign_state(state)
    classes = ", ".join(dict.fromkeys(type(o).__name__ for o, _ in state.optimizers))
    try:
        sampler, ends_capture = f"step() of {classes}", capture.config.ends_capture
        with no_error_is_caught(), python_samples(capture.definition.name, sampler, ends_capture):
            update.run()
    except (KeyError, TypeError) as error:
        refuse_foreign_state(state, capture.aside, foreign_keys_of(error, capture.aside))
        raise
    refuse_foreign_state(state, capture.aside)
    adopt_new_state(capture, update)
