"""The ordered passes `Program -> Program`; only this module runs, times, dumps, checks and skips them.

**Add a pass.** Write a function from `Program` to `Program` with an example before and after in its
docstring, give it an entry in `PASSES` at its turn in the order, and add a test to `tests/graph/passes/`.
The name of the entry is what `graph.config.passes(skip=)` takes.

A pass may change the graph of the program in place (`node_editing.py`), or return another program
(`Program.with_()`). What holds before it holds after it:

- The entry says what may change: nothing (EXACT), rounding (ROUNDING), or random numbers (RANDOM). EXACT
  means the same bits, also of NaN and of signed zeros, on each device that the pass serves.
- A new node has `meta["tensor"]`, and the phase and the module of what it replaces, which backends read.
- Graph, slots and outputs agree. `graph.config.passes(check=True)` verifies this after each pass.
- Slots, outputs and the order of writes stay. Between a write and a read of the same memory nothing moves.

Three traps. A view reads memory that a later operator may write: ask `written_args()` and `roots()`, and not
only who uses a node. Operators that sample keep their order, because each one advances the generator. Sizes
may be texts, the names of symbols: a pass sees such programs only if its entry says `symbolic` or
`any_size`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ...config import Config
from ..program import Program
from . import (
    bucket_gathers,
    cleanup,
    fuse_activations,
    fuse_dropout,
    fuse_matmul,
    fuse_softmax,
    fuse_update,
    gradients,
    reuse_memory,
)

EXACT = "exact"  # bitwise equal values
ROUNDING = "rounding"  # equal up to rounding
RANDOM = "random"  # other random numbers of the same distribution


@dataclass(frozen=True)
class Pass:
    name: str
    function: Callable[[Program], Program]
    exactness: str  # EXACT, ROUNDING or RANDOM
    option: Callable[[Config], object] | None = None  # None: always on
    any_size: bool = False  # does not read shapes
    symbolic: bool = False  # only compares shapes, which symbols of arguments allow

    def serves(self, program: Program, config: Config) -> bool:
        """Whether the pass is on, and may see the program, whose shapes may have symbols."""
        if self.name in config.skipped_passes or self.option is not None and not self.option(config):
            return False
        if program.unknown_sizes:
            return self.any_size
        return program.dimensions is None or self.any_size or self.symbolic


def _compositions(config: Config) -> bool:
    """inductor fuses compositions in what it compiles by itself."""
    return config.fuse_compositions and config.backend == "aten"


def _dropout(config: Config) -> bool:
    return config.fuse_dropout and config.backend == "aten"


def _add_in_aten(config: Config) -> bool:
    return config.fuse_add_to_output and config.backend == "aten"


def _add(config: Config) -> bool:
    return config.fuse_add_to_output


def _buckets(config: Config) -> bool:
    """A program with collectives runs on aten under auto, and inductor orders them itself."""
    return config.zero_stores_shards and config.backend in ("aten", "auto")


def _update(config: Config) -> bool | None:
    return config.fuse_update


PASSES = (  # passes in the order they run
    Pass("drop_aliases", cleanup.drop_aliases, EXACT, symbolic=True),
    Pass("drop_constant_copies", cleanup.drop_constant_copies, EXACT, symbolic=True),
    Pass("merge_views", cleanup.merge_views, EXACT, symbolic=True),
    Pass(
        "drop_kept_dimensions", cleanup.drop_kept_dimensions, EXACT, lambda config: config.backend == "aten"
    ),
    Pass("drop_dead", cleanup.drop_dead, EXACT, any_size=True),
    Pass("fuse_activations", fuse_activations.fuse_activations, ROUNDING, _compositions),
    Pass("fuse_bias_gelu", fuse_activations.fuse_bias_gelu, ROUNDING, _compositions),
    Pass("fuse_dropout", fuse_dropout.fuse_dropout, RANDOM, _dropout),
    Pass("fuse_softmax", fuse_softmax.fuse_softmax, ROUNDING, _compositions),
    Pass("scale_into_matmul", fuse_matmul.scale_into_matmul, ROUNDING, _compositions),
    Pass("add_to_matmul", fuse_matmul.add_to_matmul, ROUNDING, _add_in_aten),
    Pass("gradients_from_results", gradients.gradients_from_results, EXACT),
    Pass("add_to_output", reuse_memory.add_to_output, EXACT, _add),
    Pass("cast_scale", reuse_memory.cast_scale, EXACT, lambda config: config.fuse_cast_scale),
    Pass("skip_overflow", fuse_update.skip_overflow, EXACT, _update, any_size=True),
    Pass("scale_in_update", fuse_update.scale_in_update, ROUNDING, _update, any_size=True),
    Pass("bucket_gathers", bucket_gathers.bucket_gathers, EXACT, _buckets),
    Pass("count_together", fuse_update.count_together, EXACT, any_size=True),
    Pass(
        "sum_of_selected",
        gradients.sum_of_selected,
        EXACT,
        lambda config: config.backend == "aten",
        any_size=True,
    ),
)

# passes of a backend: compile/update_blocks.py, on the operators that it does not compile, and
# compile/pointwise_groups.py and compile/exact_products.py of aten
_PASSES_OF_BACKENDS = ("in_blocks", "in_groups", "in_exact_products", "in_runs")


def pass_names() -> list[str]:
    """Return the names that graph.config.passes(skip=) takes."""
    return [*(item.name for item in PASSES), *_PASSES_OF_BACKENDS]


def run(
    program: Program, config: Config, report: Callable[[str, float, Program], None] | None = None
) -> Program:
    """Run all passes whose option is on, in order. `report(name, seconds, program)` sees each stage."""
    for item in PASSES:
        if not item.serves(program, config):
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
