"""safetensors files, with the same checks as the library: the header must describe every byte exactly once.

The library (optional) reads a file by its path. This reader also accepts a file object. Tests check that both
accept the same files.
"""

import json
import struct
from dataclasses import dataclass
from typing import IO, Any

import torch

from .._file_safety.errors import CheckpointError
from .._file_safety.shown import reason, shown
from .._file_safety.torch_file import fill

HEADER_LIMIT = 100_000_000
_LISTS = 1000  # lists that any header may have
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
_ENTRY = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class Entry:
    """A tensor in a safetensors file. `begin` and `end` are bytes behind the header."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def read(file: IO[bytes], size: int) -> dict[str, torch.Tensor]:
    """Return {name: tensor} of a safetensors file of `size` bytes."""
    _, entries = read_header(file, size)
    return {entry.name: _tensor(file, entry) for entry in entries}


def read_header(file: IO[bytes], size: int) -> tuple[int, list[Entry]]:
    """Return the position of the first value, and the tensors in the order of their values."""
    if size < 8:
        raise CheckpointError(f"truncated: {size} bytes")
    length = struct.unpack("<Q", file.read(8))[0]
    if length > min(HEADER_LIMIT, size - 8):
        raise CheckpointError(
            f"truncated or altered: its header has {length} bytes; at most {min(HEADER_LIMIT, size - 8)} are"
            " possible"
        )
    header = _parse(file.read(length))
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict or any(type(v) is not str for v in metadata.values()):
        raise CheckpointError("altered: __metadata__ is no dict of strings")
    entries = sorted((_entry(name, entry) for name, entry in header.items()), key=lambda e: (e.begin, e.end))
    at = 0
    for entry in entries:
        begin = entry.begin
        if begin != at:
            raise CheckpointError(
                f"altered: the values of {shown(entry.name)} begin at byte {begin}, those before end at {at};"
                " ranges may"
                " not overlap or leave gaps"
            )
        at = entry.end
    if at != size - 8 - length:
        raise CheckpointError(
            f"truncated or altered: the header describes {at} bytes of values; found {size - 8 - length}"
        )
    return 8 + length, entries


def _parse(body: bytes) -> dict[str, Any]:
    # a tensor has two lists in at least 50 bytes; a header of empty lists would take 20 times its size
    if body.count(b"[") > _LISTS + len(body) // 16:
        raise CheckpointError("altered or hostile: the header has more lists than its tensors need")
    try:
        header = json.loads(body.decode("utf-8"), object_pairs_hook=_Objects().read)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"truncated or altered header ({reason(error)})") from None
    if type(header) is not dict:
        raise CheckpointError("truncated or altered: the header is no object")
    return header


class _Objects:
    """The objects of a header: one for each tensor, one of metadata, and the header itself."""

    def __init__(self) -> None:
        self._others = 0

    def read(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            raise CheckpointError("altered: a name stands twice in the header")
        if out.keys() != _ENTRY:
            self._others += 1
            if self._others > 2:
                raise CheckpointError(
                    f"altered, or of a newer version: the header has the object {shown(out)}, which describes"
                    " no tensor"
                )
        return out


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _entry(name: str, entry: Any) -> Entry:
    """Return the entry of one tensor."""
    has_keys = type(entry) is dict and entry.keys() == _ENTRY
    if not has_keys or type(entry["dtype"]) is not str or entry["dtype"] not in DTYPES:
        raise CheckpointError(
            f"altered, or of a newer version: the entry {shown(name)} of the header is {shown(entry)}"
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    are_lists = type(shape) is list and type(offsets) is list and len(offsets) == 2
    if not are_lists or not all(map(_is_count, [*shape, *offsets])):
        raise CheckpointError(
            f"altered: the entry {shown(name)} of the header has shape {shown(shape)} and bytes"
            f" {shown(offsets)}"
        )
    dtype, count = DTYPES[entry["dtype"]], 1
    for d in shape:
        count *= d
        if count >= 1 << 62:
            raise CheckpointError(f"altered: the shape of {shown(name)} is {shown(shape)}")
    if offsets[1] - offsets[0] != count * dtype.itemsize or (not count and max(shape) > 1 << 31):
        raise CheckpointError(
            f"altered: {shown(name)} is {shown(shape)} of {shown(entry['dtype'])}, but its values are bytes"
            f" {shown(offsets[0])}..{shown(offsets[1])}"
        )
    return Entry(name, dtype, tuple(shape), *offsets)


def _tensor(file: IO[bytes], entry: Entry) -> torch.Tensor:
    """Return the next tensor of the file, in a fresh buffer."""
    if entry.begin == entry.end:
        return torch.empty(entry.shape, dtype=entry.dtype)
    values = bytearray(entry.end - entry.begin)
    fill(file, memoryview(values))
    return torch.frombuffer(values, dtype=entry.dtype).reshape(entry.shape)
