"""Which process this is: its rank, its node, and how many there are."""

from __future__ import annotations

from typing import Any

from . import _env


def get_rank() -> int:
    """Number of this process among all (0 without a launcher and a process group)."""
    group = _group_without_launcher()
    return group.get_rank() if group else _env.get_int("RANK")


def get_local_rank() -> int:
    """Number of this process on its node."""
    return _env.get_int("LOCAL_RANK")


def get_world_size() -> int:
    """Return the number of processes (1 without a launcher and a process group)."""
    group = _group_without_launcher()
    return group.get_world_size() if group else _env.get_int("WORLD_SIZE")


def _group_without_launcher() -> Any:
    """torch.distributed where a program has made the process group with numbers of its own
    (multiprocessing.spawn), else None.
    """
    if _env.get("WORLD_SIZE") != "1":
        return None
    from torch import distributed

    return distributed if distributed.is_available() and distributed.is_initialized() else None


def get_node_size() -> int:
    """Return the number of nodes."""
    local = _env.get("LOCAL_WORLD_SIZE")
    return max(1, get_world_size() // int(local)) if local else 1
