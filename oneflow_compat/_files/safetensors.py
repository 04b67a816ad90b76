"""safetensors files, with the same checks as the library: the header must describe every byte exactly once.

The library (optional) reads a file by its path. This reader also accepts a file object. Tests check that both
accept the same files.
"""

import json
import struct
from typing import IO, Any

import torch

from .._file_safety.errors import CheckpointError
from .._file_safety.shown import reason, shown
from .._file_safety.torch_file import fill

_HEADER_LIMIT = 100_000_000
_LISTS = 1000  # that any header may have
_DTYPES = {
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


def read(file: IO[bytes], size: int) -> dict[str, torch.Tensor]:
    """Return {name: tensor} of a safetensors file of `size` bytes."""
    length = struct.unpack("<Q", file.read(8))[0]
    if length > min(_HEADER_LIMIT, size - 8):
        raise CheckpointError(
            f"truncated or altered: its header has {length} bytes; at most {min(_HEADER_LIMIT, size - 8)} are"
            " possible"
        )
    header = _parse(file.read(length))
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict or any(type(v) is not str for v in metadata.values()):
        raise CheckpointError("altered: __metadata__ is no dict of strings")
    entries = sorted((_entry(name, entry) for name, entry in header.items()), key=lambda e: e[3])
    at = 0
    for name, _, _, (begin, end), _ in entries:
        if begin != at:
            raise CheckpointError(
                f"altered: the values of {shown(name)} begin at byte {begin}, those before end at {at};"
                " ranges may"
                " not overlap or leave gaps"
            )
        at = end
    if at != size - 8 - length:
        raise CheckpointError(
            f"truncated or altered: the header describes {at} bytes of values; found {size - 8 - length}"
        )
    return {name: _tensor(file, dtype, shape, begin, end) for name, dtype, shape, (begin, end), _ in entries}


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


def _entry(name: Any, entry: Any) -> tuple[Any, ...]:
    """Return (name, dtype, shape, (begin, end), elements) of one tensor."""
    has_keys = type(entry) is dict and entry.keys() == _ENTRY
    if not has_keys or type(entry["dtype"]) is not str or entry["dtype"] not in _DTYPES:
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
    dtype, count = _DTYPES[entry["dtype"]], 1
    for d in shape:
        count *= d
        if count >= 1 << 62:
            raise CheckpointError(f"altered: the shape of {shown(name)} is {shown(shape)}")
    if offsets[1] - offsets[0] != count * dtype.itemsize or (not count and max(shape) > 1 << 31):
        raise CheckpointError(
            f"altered: {shown(name)} is {shown(shape)} of {shown(entry['dtype'])}, but its values are bytes"
            f" {shown(offsets[0])}..{shown(offsets[1])}"
        )
    return name, dtype, shape, tuple(offsets), count


def _tensor(file: Any, dtype: Any, shape: Any, begin: int, end: int) -> torch.Tensor:
    """Return the next tensor of the file, in a fresh buffer."""
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    values = bytearray(end - begin)
    fill(file, memoryview(values))
    return torch.frombuffer(values, dtype=dtype).reshape(shape)
