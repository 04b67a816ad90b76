"""Run a program that may take another branch than at capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..program.program import CompiledFunction, Program
from ..program.symbolic import branch_of_message
from ..program.writes import written_before_the_last_check


class BranchTaken(RuntimeError):
    """A branch on sizes took another outcome than in the program; all writes have been undone.

    `index` is its position among the branches of the program.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def with_branches(program: Program, run: CompiledFunction) -> CompiledFunction:
    """Return `run` with the writes undone, and BranchTaken raised, if a branch takes another outcome."""
    saved = written_before_the_last_check(program)
    devices = {s.device for s in program.slots if s.device is not None and s.device.type == "cuda"}

    def run_or_undo(*values: Any) -> Sequence[Any]:
        generators = torch.default_generator, *(torch.cuda.default_generators[d.index or 0] for d in devices)
        random_states = [(generator, generator.get_state()) for generator in generators]
        before = [(values[i], values[i].clone()) for i in saved]
        try:
            return run(*values)
        except RuntimeError as error:
            # Compiled code checks a branch by torch's _assert_async, which raises a RuntimeError with a text.
            index = branch_of_message(str(error))
            if index is None:
                raise
            for generator, state in random_states:
                generator.set_state(state)
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
            raise BranchTaken(index, str(error)) from None

    return run_or_undo
