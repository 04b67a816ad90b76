"""Runs the captured operators as they are, in order: instant start, the reference for the others."""

from __future__ import annotations

from .call_wrapper import runner
from .update_blocks import in_blocks


def compile(program, config, name="aten"):
    """Return a function over the slot values. Autograd is off while the function runs."""
    return runner(lambda: in_blocks(program, config.skip))
