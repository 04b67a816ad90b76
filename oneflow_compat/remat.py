"""oneflow.remat: the budget of OneFlow's rematerialisation; remembered, without effect."""

from __future__ import annotations

import re

from . import _knobs

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1 << 10,
    "mb": 1 << 20,
    "gb": 1 << 30,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
}


def parse_size(size: int | str) -> int:
    """Bytes of "2GB", "512 MB", "100" or an int; ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    if not match or match.group(2).lower() not in _UNITS:
        raise ValueError(f"a size is a number with an optional unit (KB, MB, GB), found {size!r}")
    return int(float(match.group(1)) * _UNITS[match.group(2).lower()])


def set_budget(budget: str) -> None:
    """Check and remember the memory budget; no tensor is evicted (difference row knobs)."""
    parse_size(budget)
    _knobs.knob("remat.set_budget")(str(budget))


def get_budget() -> int:
    """The remembered budget in bytes."""
    return parse_size(_knobs.read("remat.set_budget"))


set_small_pieces_optimization = _knobs.knob("remat.set_small_pieces_optimization")


def is_small_pieces_optimization_enabled() -> bool:
    """The remembered switch."""
    return _knobs.read("remat.set_small_pieces_optimization")
