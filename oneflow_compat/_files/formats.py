"""Which format a file has, and the formats that need a reader of our own (safetensors)."""
from __future__ import annotations

import json
import os
import struct

import torch

from .layout import CheckpointError

_SAFETENSORS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
    "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
# the first thing in torch's files of before 2020: this number, pickled
_TORCH_LEGACY = bytes.fromhex("8a0a6cfc9c46f9206aa85019")


def kind_of(file, size: int) -> str:
    """"zip", "torch-legacy", "tar", "safetensors", "pickle" or "unknown"; the position is kept."""
    start = file.tell()
    head = file.read(512)
    file.seek(start)
    if head[:4] == b"PK\x03\x04" or head[:4] == b"PK\x05\x06":
        return "zip"
    if _TORCH_LEGACY in head[:32]:
        return "torch-legacy"
    if head[257:262] == b"ustar":
        return "tar"
    if len(head) >= 9 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= max(size - 8, 0):
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    return "unknown"


def size_of(file) -> int:
    """Bytes from the current position to the end."""
    here = file.tell()
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(here)
    return end - here


def check_zip(file, source) -> None:
    """Compare the CRC-32 of each member of torch's zip file (torch's own reader does not); other files pass."""
    import zipfile
    import zlib

    start = file.tell()
    try:
        if file.read(4) != b"PK\x03\x04" or start:
            return
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                with archive.open(member) as inner:
                    while inner.read(1 << 22):
                        pass
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:  # an altered byte may give any of them
        raise CheckpointError(
            f"{source}: truncated or altered ({error}). If it was written with torch.serialization.set_crc32_options(False), load it with check_crc=False"
        ) from None
    finally:
        file.seek(start)


def read_safetensors(file, source) -> dict[str, torch.Tensor]:
    """{name: tensor} of a safetensors file; offsets and sizes are checked against shapes."""
    size = size_of(file)
    length = struct.unpack("<Q", file.read(8))[0]
    try:
        header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("the header is not an object")
    except ValueError as error:
        raise CheckpointError(f"{source}: truncated or altered safetensors header ({error})") from None
    data = bytearray(file.read())
    if len(data) != size - 8 - length:
        raise CheckpointError(f"{source}: truncated while it was read")
    header.pop("__metadata__", None)
    ends = [entry["data_offsets"][1] for entry in header.values() if isinstance(entry, dict) and "data_offsets" in entry]
    if max(ends, default=0) != len(data):
        raise CheckpointError(f"{source}: truncated or altered: the header describes {max(ends, default=0)} bytes of values; found {len(data)}")
    return {name: _entry(name, entry, data, source) for name, entry in header.items()}


def _entry(name, entry, data, source) -> torch.Tensor:
    try:
        dtype, shape, (begin, end) = _SAFETENSORS[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{source}: entry {name!r} of the header is not understood: {entry!r}") from None
    count = 1
    for d in shape:
        count *= d
    if not 0 <= begin <= end <= len(data) or end - begin != count * dtype.itemsize:
        raise CheckpointError(f"{source}: {name!r} is {shape} of {entry['dtype']}, but its values are bytes {begin}..{end} of {len(data)}")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    # a copy: the values of one name must not keep all others in memory
    return torch.frombuffer(bytearray(memoryview(data)[begin:end]), dtype=dtype).reshape(shape)
