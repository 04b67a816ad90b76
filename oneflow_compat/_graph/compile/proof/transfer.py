"""The inputs of a call in a file, for a process that proves a region."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any, BinaryIO

import torch

from ..copies import bytes_at, ranges

_ALIGNMENT = 64  # bytes, of each range of memory in the file


def write_inputs(values: Sequence[torch.Tensor], file: BinaryIO) -> list[dict[str, Any]]:
    """Write the memory of tensors on the CPU. Return their layouts in the file, as JSON."""
    layouts: list[Any] = [None] * len(values)
    for start, end, members in ranges(values, None):
        file.seek(-file.tell() % _ALIGNMENT, 1)
        position = file.tell()
        if end > start:
            content: Any = bytes_at(values[members[0]], start, end - start).numpy()
            file.write(content)
        for i in members:
            value = values[i]
            layouts[i] = {
                "position": position + (value.data_ptr() - start if end > start else 0),
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
                "stride": list(value.stride()),
            }
    file.truncate(max(file.tell(), 1))
    file.flush()
    return layouts


def read_inputs(handle: int, layouts: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
    """Return the tensors in a file. Writes do not reach the file."""
    memory = torch.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_COPY), dtype=torch.uint8)
    values = []
    for layout in layouts:
        value = torch.empty(0, dtype=getattr(torch, layout["dtype"]))
        offset = layout["position"] // value.element_size()
        values.append(value.set_(memory.untyped_storage(), offset, layout["shape"], layout["stride"]))
    return values
