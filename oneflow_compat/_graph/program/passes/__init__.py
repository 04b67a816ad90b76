"""The ordered passes `Program -> Program`; only this module runs, times, dumps, checks and skips them."""

from __future__ import annotations

import time
from dataclasses import dataclass

EXACT = "exact"  # bitwise equal values
ROUNDING = "rounding"  # equal up to rounding
RANDOM = "random"  # other random numbers of the same distribution


@dataclass(frozen=True)
class Pass:
    name: str
    function: object
    kind: str
    option: object = None  # Config -> bool; None: always on
    any_size: bool = False  # does not read shapes
    symbolic: bool = False  # only compares shapes, which symbols of arguments allow


def _passes():
    from . import (
        cleanup,
        fuse_activations,
        fuse_bias_gelu,
        fuse_dropout,
        fuse_matmul,
        fuse_softmax,
        fuse_update,
        gradient_from_result,
        masked_fill_gradient,
        reuse_memory,
        step_counters,
    )

    def compositions(config):  # inductor fuses what it compiles by itself
        return config.fuse_compositions and config.backend == "aten"

    return (
        Pass("drop_aliases", cleanup.drop_aliases, EXACT, symbolic=True),
        Pass("drop_constant_copies", cleanup.drop_constant_copies, EXACT, symbolic=True),
        Pass("merge_views", cleanup.merge_views, EXACT, symbolic=True),
        Pass("drop_dead", cleanup.drop_dead, EXACT, any_size=True),
        Pass("fuse_activations", fuse_activations.fuse_activations, ROUNDING, compositions),
        Pass("fuse_bias_gelu", fuse_bias_gelu.fuse_bias_gelu, ROUNDING, compositions),
        Pass(
            "fuse_dropout",
            fuse_dropout.fuse_dropout,
            RANDOM,
            lambda config: config.fuse_dropout and config.backend == "aten",
        ),
        Pass("fuse_softmax", fuse_softmax.fuse_softmax, ROUNDING, compositions),
        Pass("scale_into_matmul", fuse_matmul.scale_into_matmul, ROUNDING, compositions),
        Pass(
            "add_to_matmul",
            fuse_matmul.add_to_matmul,
            ROUNDING,
            lambda config: config.fuse_add_to_output and config.backend == "aten",
        ),
        Pass("gradients_from_results", gradient_from_result.gradients_from_results, EXACT),
        Pass("add_to_output", reuse_memory.add_to_output, EXACT, lambda config: config.fuse_add_to_output),
        Pass("cast_scale", reuse_memory.cast_scale, EXACT, lambda config: config.fuse_cast_scale),
        Pass(
            "skip_overflow",
            fuse_update.skip_overflow,
            EXACT,
            lambda config: config.fuse_update,
            any_size=True,
        ),
        Pass(
            "scale_in_update",
            fuse_update.scale_in_update,
            ROUNDING,
            lambda config: config.fuse_update,
            any_size=True,
        ),
        Pass("count_together", step_counters.count_together, EXACT, any_size=True),
        Pass(
            "sum_of_selected",
            masked_fill_gradient.sum_of_selected,
            EXACT,
            lambda config: config.backend == "aten",
            any_size=True,
        ),
    )


def passes():
    """The passes in the order they run."""
    return _passes()


def run(program, config, report=None, only_exact=False):
    """Run all passes whose option is on, in order. `report(name, seconds, program)` sees each stage."""
    for item in _passes():
        if item.name in config.skip or (only_exact and item.kind != EXACT):
            continue
        if item.option is not None and not item.option(config) or not _allows_sizes(item, program):
            continue
        start = time.perf_counter()
        program = item.function(program)
        seconds = time.perf_counter() - start
        program = program.with_(history=program.history + ((item.name, seconds, program.count()),))
        if config.check:
            program.check()
        if report is not None:
            report(item.name, seconds, program)
    return program


def _allows_sizes(item, program):
    """Whether a pass may see the program, whose shapes may have symbols."""
    if program.unknown_sizes:
        return item.any_size
    return program.dimensions is None or item.any_size or item.symbolic
