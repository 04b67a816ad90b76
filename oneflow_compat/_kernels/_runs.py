"""Loading of the library that calls several operators of a program without Python (csrc/runs.cpp).

It uses torch's C++ API, which has no stable ABI. So its name holds the release of torch that it was built
for. Another release calls each operator from Python.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from .. import _env

PATH = Path(__file__).resolve().parents[1] / f"_runs-torch-{torch.__version__}.so"


@functools.cache
def is_loaded() -> bool:
    """Load the library, and return whether its operators can be called."""
    if not _env.is_set("ONEFLOW_EXT") or not PATH.exists():
        return False
    try:
        torch.ops.load_library(str(PATH))
    except OSError:
        return False
    return True
