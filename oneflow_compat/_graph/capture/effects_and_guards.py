"""What a capture hands over besides its program: what a run does, and what must hold for a later call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..._global.marks import is_global
from ..errors import CaptureError
from ..guards.counters import Counter
from ..program.captured import Effects, Guards
from ..program.shared_containers import shared_places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..program.locations import StateEntry
    from ..program.shared_containers import Container
    from .interfaces import CaptureInterface
    from .outputs import Outputs


def effects_of(
    capture: CaptureInterface, outputs: Outputs, containers_of_results: tuple[Container, ...]
) -> Effects:
    """Return what a run of the program does besides computing its results."""
    update, gradients = capture.update, capture.left_gradients
    shared = shared_places([a.containers for a in capture.attributes], containers_of_results)
    if shared is None:
        raise CaptureError(
            "build() keeps one list, dict or object in two tuples, or in one and in the results",
            "Keep a copy of it.",
        )
    created = (*update.created, *capture.new_state) if update is not None else ()
    return Effects(
        attributes=tuple(capture.attributes),
        argument_changes=outputs.argument_changes,
        state_values=tuple(v.location for v in update.state_values) if update is not None else (),
        reports_overflow=capture.overflow is not None,
        created_state=(*(c.location for c in created), *update.structures) if update is not None else (),
        undo=[capture.modules.snapshot.restore_everything],
        counters=tuple(guard for guard in capture.observed.guards if isinstance(guard.source, Counter)),
        schedulers=tuple(s for _, s in capture.state.optimizers if s is not None),
        schedulers_of_build=tuple(capture.steps.schedulers),
        gradients=gradients.parameters,
        cleared_gradients=gradients.cleared,
        dropped_gradients=gradients.dropped,
        global_results=outputs.global_results,
        own_objects=outputs.own_objects,
        shared_containers=shared,
        keeps_histories=capture.definition.steps_in_build,
    )


def guards_of(
    capture: CaptureInterface,
    free_index: Mapping[int, int | None],
    overlaps: frozenset[tuple[int, int]],
    merged: tuple[tuple[int, StateEntry], ...],
    merged_free: tuple[tuple[int, torch.Tensor], ...],
) -> Guards:
    """Return what the capture assumed."""
    recorder, update = capture.recorder, capture.update
    named = (entry.tensor for entry in capture.state.by_id.values())
    return Guards(
        argument_facts=capture.argument_facts,
        free_index=free_index,
        live_options={o: frozenset(names) for o, names in capture.assumptions.live_options.items()},
        overlaps=overlaps,
        merged=merged,
        merged_free=merged_free,
        options_read=frozenset(capture.options.indices),
        options_as_inputs=frozenset(capture.options.nodes),
        branches=recorder.sizes.branches,
        fixes_sizes=recorder.sizes.fixed,
        reads_values=bool(recorder.guards),
        branches_on_options=bool(capture.options.numbers.outcomes),
        branches_on_numbers=bool(capture.number_inputs.conditions),
        serves_one_call=update is not None and update.serves_one_call,
        reads_global_tensors=any(
            isinstance(value, torch.Tensor) and is_global(value) for value in (*capture.args_flat, *named)
        ),
    )
