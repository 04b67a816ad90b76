"""Whether build() can be observed here: this Python's instructions and torch's frame hook are known.

If not, no program is captured, because a program would miss changes of what build() read.
"""

from __future__ import annotations

import functools
import sys
import sysconfig

import torch

from .instrumentation.bytecode import VERSION
from .instrumentation.instructions import LAYOUTS, unknown_instructions

# 3.10 does not show the frames of generators
INSTALL = "install CPython 3.11 to {}.{} with torch 2.11 to 2.15".format(*max(LAYOUTS))


@functools.lru_cache(None)
def why_unobserved() -> str | None:
    """Return why reads of build() cannot be observed here, or None if they can."""
    return _why_python_is_unknown() or _why_hook_is_unknown()


def _why_python_is_unknown() -> str | None:
    name = f"{sys.implementation.name} {sys.version.split()[0]}"
    if sys.implementation.name != "cpython" or VERSION not in LAYOUTS:
        return f"{name} is newer than this release, or another Python than it knows"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"{name} is a free-threaded build of Python"
    unknown = unknown_instructions()
    if unknown:
        return f"{name} has instructions that this release does not know: {', '.join(sorted(unknown))}"
    return None


def _why_hook_is_unknown() -> str | None:
    """Run a function with reads of many sorts; each of them must reach the hooks."""
    try:
        from .probe import unseen_reads  # torch may lack the hook

        unseen = unseen_reads()
    except (ImportError, AttributeError, TypeError) as error:
        return f"the frame hook of torch {torch.__version__} is not the one that this release knows ({error})"
    if unseen:
        return f"the frame hook of torch {torch.__version__} does not show {', '.join(unseen)}"
    return None
