"""Lines on stderr about compilation, which may take minutes in which the program seems to hang; none under
ONEFLOW_QUIET=1.
"""

from __future__ import annotations

import contextlib
import sys
import time

from ..._env import is_set


def say(text):
    """Write one line to stderr."""
    if not is_set("ONEFLOW_QUIET") and sys.stderr is not None:  # None if there is no console
        print(f"oneflow: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def announced(program, operators):
    """Say when inductor begins to compile these operators of a program, when it ends, and how
    long it took.
    """
    begin, outcome = time.perf_counter(), "failed to compile"
    say(f"graph {program.name}: compiling {operators} operators with inductor; until then the call waits")
    try:
        yield
        outcome = "compiled"
    finally:
        say(f"graph {program.name}: {outcome} after {time.perf_counter() - begin:.1f} s")
