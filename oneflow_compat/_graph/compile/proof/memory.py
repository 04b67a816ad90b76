"""How much memory a proof may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_UNKNOWN = 1 << 62


def available(values: Sequence[Any]) -> int:
    """Return the bytes that are free on the device of the tensors with the least free memory."""
    devices = {v.device for v in values if isinstance(v, torch.Tensor)}
    free = [torch.cuda.mem_get_info(d)[0] for d in devices if d.type == "cuda"]
    return min([*free, _free_on_host()])


def _free_on_host() -> int:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, LookupError, ValueError):
        return _UNKNOWN  # not Linux
