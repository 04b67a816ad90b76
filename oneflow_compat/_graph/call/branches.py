"""Run a program that may take another branch than at capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..program.program import CompiledFunction
from ..program.symbolic import branch_of_message


class BranchTaken(RuntimeError):
    """A branch on sizes took another outcome than in the program, which has taken its writes back.

    `index` is its position among the branches of the program.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def with_branches(run: CompiledFunction) -> CompiledFunction:
    """Return `run` with BranchTaken raised if a branch takes another outcome."""

    def run_or_tell(*values: Any) -> Sequence[Any]:
        try:
            return run(*values)
        except RuntimeError as error:
            # Compiled code checks a branch by torch's _assert_async, which raises a RuntimeError with a text.
            index = branch_of_message(str(error))
            if index is None:
                raise
            raise BranchTaken(index, str(error)) from None

    return run_or_tell
