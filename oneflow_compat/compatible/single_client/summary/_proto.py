"""The few protocol-buffer messages of an event file, written by hand, and the file's record format."""

import struct
from typing import Any

from ...._data.wire import varint


def field(field_number: int, value: Any) -> bytes:
    """One field: int as varint, float as double, bytes and str as length-delimited."""
    if isinstance(value, bool) or isinstance(value, int):
        return varint(field_number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(field_number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, str):
        value = value.encode("utf8")
    return varint(field_number << 3 | 2) + varint(len(value)) + value


def float32(field_number: int, value: float) -> bytes:
    return varint(field_number << 3 | 5) + struct.pack("<f", value)


def doubles(field_number: int, values: Any) -> bytes:
    return field(field_number, b"".join(struct.pack("<d", v) for v in values))


def summary_value(tag: str, *parts: bytes) -> bytes:
    """Summary with one Value."""
    return field(1, field(1, tag) + b"".join(parts))


def metadata(plugin: str, content: bytes = b"") -> bytes:
    """Summary.Value.metadata for a plugin."""
    inner = field(1, plugin) + (field(2, content) if content else b"")
    return field(9, field(1, inner))


def string_tensor(content: str) -> bytes:
    """Summary.Value.tensor holding one string."""
    shape = field(2, field(1, 1))
    return field(8, field(1, 7) + field(2, shape) + field(8, content))


def event(wall_time: float, step: int, summary: bytes | None = None, version: str | None = None) -> bytes:
    out = field(1, wall_time) + field(2, step)
    if version is not None:
        out += field(3, version)
    if summary is not None:
        out += field(5, summary)
    return out


def _crc_table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    c = 0xFFFFFFFF
    for b in data:
        c = c >> 8 ^ _TABLE[(c ^ b) & 255]
    return c ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    c = crc32c(data)
    return struct.pack("<I", ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """Length, its checksum, the data, its checksum."""
    head = struct.pack("<Q", len(data))
    return head + _masked(head) + data + _masked(data)
