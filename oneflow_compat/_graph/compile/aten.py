"""Run the captured operators in order: it starts at once, and is the reference for the other backends."""

from ..config import Config
from ..program.program import CompiledFunction, Program
from .call_wrapper import runner
from .exact_products import in_exact_products
from .pointwise_groups import in_groups
from .update_blocks import in_blocks


def compile(program: Program, config: Config, name: str = "aten") -> CompiledFunction:
    """Return a function over the slot values. Autograd is off while the function runs."""
    skipped = config.skipped_passes
    return runner(
        lambda: in_exact_products(in_groups(in_blocks(program, skipped), skipped), skipped),
        calls_runs="in_runs" not in skipped,
    )
