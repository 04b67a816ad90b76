"""Which branches on sizes a capture takes, if build() raises in some of them.

During a capture, the outcome of a branch on a size that depends on values is a guess. If build() raises after
such a guess, the engine captures build() again with the other outcome, and the program tests that outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .program.symbolic import Branch

MAX_BRANCHED = 16  # variants of a program with branches on sizes


class BranchSearch:
    """The outcomes that the next capture assumes. `outcomes` maps a branch to the outcome that it takes."""

    def __init__(self, told: Mapping[Branch, bool]) -> None:
        """`told` are the outcomes that an earlier call took. They are no guesses."""
        self.told = self.outcomes = told
        self.errors: list[Exception] = []  # an error of build() for each attempt
        self._turned: list[Branch] = []  # branches whose first outcome raised

    def turn_last_guess(self, error: Exception, branches: Mapping[Branch, bool], most: int) -> bool:
        """Take the other outcome of the last guess among the branches that the failed capture took.

        Return False if there is no guess left, or after more than `most` attempts.
        """
        self.errors.append(error)
        guesses = list(branches.items())
        while guesses and (guesses[-1][0] in self.told or guesses[-1][0] in self._turned):
            guesses.pop()
        if not guesses or len(self.errors) > most:
            return False
        branch, outcome = guesses.pop()
        before = dict(guesses)
        self.outcomes = {**before, branch: not outcome}
        self._turned = [*(turned for turned in self._turned if turned in before), branch]
        return True

    def restart(self) -> None:
        """Start again with the outcomes that an earlier call took."""
        self.outcomes = self.told
        self.errors.clear()
        self._turned.clear()
