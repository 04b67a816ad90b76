"""Lines on stderr about compilation, which may take minutes in which the program seems to hang; none under
ONEFLOW_QUIET=1.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

from ..._env import is_set


def say(message: str) -> None:
    """Write one line to stderr."""
    if not is_set("ONEFLOW_QUIET") and sys.stderr is not None:  # None if there is no console
        print(f"oneflow: {message}", file=sys.stderr, flush=True)


class Announcement:
    """The lines about one compilation: `begin()` writes the first line, leaving the context the last one.

    Nothing is written if `begin()` is not called, because all regions were in the program cache.
    """

    def __init__(self, name: str, operators: int) -> None:
        self.name, self.operators = name, operators
        self.begun: float | None = None  # the time

    def begin(self) -> None:
        """Say that inductor begins to compile, at the first region that it compiles."""
        if self.begun is None:
            self.begun = time.perf_counter()
            say(
                f"graph {self.name}: compiling {self.operators} operators with inductor; until then the call"
                " waits"
            )

    def __enter__(self) -> Announcement:
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.begun is not None:
            outcome = "compiled" if error_class is None else "failed to compile"
            say(f"graph {self.name}: {outcome} after {time.perf_counter() - self.begun:.1f} s")
