"""The safetensors files of a sharded checkpoint: each rank writes one, any rank reads parts of any."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import torch

from ..._file_safety import atomic
from ..._file_safety.errors import CheckpointError
from ..._file_safety.shown import shown
from .. import safetensors
from .boxes import Box
from .tensors import BLOCK, blocks, bytes_of

_RUN = 16 << 10  # bytes; shorter runs are read together with the bytes between them
_NAMES = {dtype: name for name, dtype in safetensors.DTYPES.items()}


def is_storable(dtype: torch.dtype) -> bool:
    """Whether safetensors files can hold tensors of a dtype."""
    return dtype in _NAMES or dtype is torch.complex128


def stored_form(dtype: torch.dtype, shape: Sequence[int]) -> tuple[str, list[int]]:
    """Return the dtype and the shape that safetensors has for a tensor. complex128 is stored as pairs."""
    if dtype is torch.complex128:
        return "F64", [*shape, 2]
    if dtype not in _NAMES:
        raise NotImplementedError(
            f"layout='sharded' has no form for {dtype} in safetensors; save it with the default layout"
        )
    return _NAMES[dtype], list(shape)


# --------------------------------------------------------------------------- writing
@dataclass(frozen=True)
class Part:
    """One chunk to write: its key in the file, and its values on this rank."""

    key: str
    values: torch.Tensor


def alignment_order(part: Part) -> int:
    """Sort key of the parts of a file: readers need each tensor at a multiple of its element's size."""
    return -part.values.dtype.itemsize


def write(path: str, parts: Sequence[Part]) -> tuple[int, list[int]]:
    """Write a safetensors file and flush it. Return its size and the CRC-32 of each part."""
    header, end = {}, 0
    for part in parts:
        dtype, shape = stored_form(part.values.dtype, part.values.shape)
        header[part.key] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + part.values.nbytes]}
        end += part.values.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    if len(head) > safetensors.HEADER_LIMIT:
        raise ValueError(f"layout='sharded': {len(parts)} tensors are too many for one safetensors file")
    checksums = []
    with atomic.new_file(path) as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for part in parts:
            crc = 0
            for block in blocks(part.values):
                crc = zlib.crc32(block, crc)
                file.write(block)
            checksums.append(crc)
    return 8 + len(head) + end, checksums


# --------------------------------------------------------------------------- reading
class ShardFile:
    """An open safetensors file whose header has been checked."""

    def __init__(self, file: IO[bytes], name: str, size: int) -> None:
        self.file, self.name = file, name
        self._start, entries = safetensors.read_header(file, size)
        self._entries = {entry.name: entry for entry in entries}

    def check(self, key: str, dtype: torch.dtype, sizes: Sequence[int]) -> None:
        """Raise CheckpointError unless the file has an entry of this dtype and shape."""
        entry, form = self._entries.get(key), stored_form(dtype, sizes)
        if entry is None:
            raise CheckpointError.of(
                self.name, f"altered: it has no tensor {shown(key)}, which the index names"
            )
        own = _NAMES[entry.dtype], list(entry.shape)
        if own != form:
            raise CheckpointError.of(
                self.name, f"altered: {shown(key)} is {shown(own)}, the index says {shown(form)}"
            )

    def begin_of(self, key: str) -> int:
        """Return the position of the first byte of an entry."""
        return self._start + self._entries[key].begin

    def check_sum(self, key: str, crc: int) -> None:
        """Compare the CRC-32 of an entry with the one in the index."""
        entry, actual = self._entries[key], 0
        self.file.seek(self.begin_of(key))
        buffer = memoryview(bytearray(min(BLOCK, entry.end - entry.begin)))
        for begin in range(entry.begin, entry.end, BLOCK):
            block = buffer[: min(BLOCK, entry.end - begin)]
            self._fill(block)
            actual = zlib.crc32(block, actual)
        self._compare(key, actual, crc)

    def _compare(self, key: str, actual: int, crc: int) -> None:
        if actual != crc:
            raise CheckpointError.of(
                self.name,
                f"altered: the CRC-32 of {shown(key)} is {actual:08x}, the index says {shown(crc)}",
            )

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = self.file.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise CheckpointError.of(
                    self.name, f"truncated while it was read: {len(view) - done} bytes lack"
                )
            done += count

    def read(self, key: str, sizes: Sequence[int], box: Box, out: torch.Tensor, crc: int | None) -> None:
        """Copy a part of an entry of these sizes to `out`.

        `crc`: compare the checksum; used if the part is the full entry.
        """
        start = self.begin_of(key)
        if box == Box.full(sizes) and crc is not None:
            self._compare(key, self._read_full(start, out, True), crc)
        else:
            self._read_part(start, tuple(sizes), box, out, out.dtype.itemsize)

    def _read_full(self, start: int, out: torch.Tensor, has_crc: bool = False) -> int:
        """Copy the bytes from `start` on to a tensor, and return their CRC-32 if `has_crc`."""
        self.file.seek(start)
        crc = 0
        if out.device.type == "cpu" and out.is_contiguous():
            data = bytes_of(out)
            for begin in range(0, len(data), BLOCK):
                block = data[begin : begin + BLOCK]
                self._fill(block)
                crc = zlib.crc32(block, crc) if has_crc else 0
            return crc
        for target in _row_blocks(out):
            buffer = torch.empty(target.shape, dtype=out.dtype, device="cpu")
            self._fill(bytes_of(buffer))
            crc = zlib.crc32(bytes_of(buffer), crc) if has_crc else 0
            target.copy_(buffer)
        return crc

    def _read_part(
        self, start: int, sizes: tuple[int, ...], box: Box, out: torch.Tensor, itemsize: int
    ) -> None:
        """Copy a box of a row-major array that begins at byte `start`."""
        row = itemsize
        for size in sizes[1:]:
            row *= size
        if box.sizes[1:] == sizes[1:]:  # full rows, which are contiguous
            self._read_full(start + (box.offsets[0] * row if sizes else 0), out)
            return
        rest = Box(box.offsets[1:], box.sizes[1:])
        if _run(sizes[1:], rest, itemsize) < _RUN and row <= BLOCK:
            self._read_rows(start + box.offsets[0] * row, row, sizes[1:], rest, out)
            return
        for index in range(box.sizes[0]):
            self._read_part(start + (box.offsets[0] + index) * row, sizes[1:], rest, out[index], itemsize)

    def _read_rows(self, start: int, row: int, sizes: tuple[int, ...], rest: Box, out: torch.Tensor) -> None:
        """Read full rows into a buffer, and copy a part of each."""
        step = max(1, BLOCK // max(row, 1))
        rows = (slice(None), *rest.slices())
        self.file.seek(start)
        for begin in range(0, len(out), step):
            target = out[begin : begin + step]
            buffer = torch.empty((len(target), *sizes), dtype=out.dtype, device="cpu")
            self._fill(bytes_of(buffer))
            target.copy_(buffer[rows])


def _run(sizes: tuple[int, ...], box: Box, itemsize: int) -> int:
    """Return the bytes of the box that stand together in a row-major array."""
    run = itemsize
    for size, part in zip(reversed(sizes), reversed(box.sizes)):
        run *= part
        if size != part:
            break
    return run


def _row_blocks(out: torch.Tensor) -> Any:
    """Yield views of a tensor, in row-major order, of at most 16 MiB each."""
    if out.nbytes <= BLOCK or not out.dim():
        yield out
        return
    rows = BLOCK * out.shape[0] // out.nbytes
    for part in out.split(max(rows, 1)):
        if rows:
            yield part
        else:
            yield from _row_blocks(part[0])
