"""The part of protobuf's wire format that OFRecord messages use, without protobuf.

A record is {name: (name of a list, values)}: "bytes_list" (list of bytes), "float_list", "double_list",
"int32_list", "int64_list" (numpy arrays) or None (a feature without a value).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

KINDS = ("bytes_list", "float_list", "double_list", "int32_list", "int64_list")  # field numbers 1..5
DTYPES: dict[str, np.dtype] = {
    "float_list": np.dtype("<f4"),
    "double_list": np.dtype("<f8"),
    "int32_list": np.dtype("<i4"),
    "int64_list": np.dtype("<i8"),
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not a message of this type."""


# --------------------------------------------------------------------------- writing
def varint(value: int) -> bytes:
    """Return an integer in base 128, lowest digit first."""
    value &= 0xFFFFFFFFFFFFFFFF  # a negative number has ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(field_number: int, body: bytes) -> bytes:
    return bytes((field_number << 3 | _BYTES,)) + varint(len(body)) + body


def encode_list(list_name: str, values: Sequence[Any] | np.ndarray) -> bytes:
    """Return a BytesList, FloatList, ... message."""
    if list_name == "bytes_list":
        return b"".join(_field(1, bytes(v)) for v in values)
    if len(values) == 0:
        return b""
    if list_name in ("float_list", "double_list"):
        return _field(1, np.ascontiguousarray(values, DTYPES[list_name]).tobytes())
    return _field(1, b"".join(varint(int(v)) for v in values))


def encode_feature(list_name: str | None, values: Sequence[Any] | np.ndarray) -> bytes:
    return b"" if list_name is None else _field(KINDS.index(list_name) + 1, encode_list(list_name, values))


def encode_record(features: dict[str, Any]) -> bytes:
    """Return an OFRecord message of {name: (name of the list, values)}, with the names in order."""
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, encode_feature(*features[name])))
        for name in sorted(features)
    )


# --------------------------------------------------------------------------- reading
def _read_varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError(f"a number runs past byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield (field number, wire type, value) of a message. The value is an int or a memoryview."""
    data, at = memoryview(data), 0
    value: Any
    while at < len(data):
        key, at = _read_varint(data, at)
        field_number, wire = key >> 3, key & 7
        if field_number == 0:
            raise WireError(f"field number 0 before byte {at}")
        if wire == _VARINT:
            value, at = _read_varint(data, at)
        else:
            if wire == _BYTES:
                size, at = _read_varint(data, at)
            elif wire in (_FIXED32, _FIXED64):
                size = 4 if wire == _FIXED32 else 8
            else:
                raise WireError(f"wire type {wire} before byte {at}")
            if at + size > len(data):
                raise WireError(f"{size} bytes are announced at byte {at}, {len(data) - at} are left")
            value = data[at : at + size]
            at += size
        yield field_number, wire, value


def decode_list(list_name: str, data: bytes | memoryview) -> list[bytes] | np.ndarray:
    """Return the values of a BytesList, FloatList, ... message."""
    if list_name == "bytes_list":
        return [bytes(v) for field_number, wire, v in fields(data) if field_number == 1 and wire == _BYTES]
    dtype = DTYPES[list_name]
    parts = []
    for field_number, wire, value in fields(data):
        if field_number != 1:
            continue
        if wire == _VARINT:
            parts.append(np.array([value], np.uint64).astype(np.int64))
        elif dtype.kind == "f" and len(value) % dtype.itemsize == 0:  # packed or single
            parts.append(np.frombuffer(value, dtype))
        elif dtype.kind == "i" and wire == _BYTES:
            parts.append(_packed_varints(value))
        else:
            raise WireError(f"{list_name} of {len(value)} bytes with wire type {wire}")
    if not parts:
        return np.empty(0, dtype)
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).astype(dtype, copy=False)


def _packed_varints(data: Any) -> np.ndarray:
    raw = np.frombuffer(data, np.uint8)
    last = raw < 0x80
    if last.all():
        return raw.astype(np.int64)
    if not last[-1]:
        raise WireError("the last number of a list is cut off")
    ends = np.flatnonzero(last)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise WireError("a number of more than ten bytes")
    values = np.zeros(len(ends), np.uint64)
    for k in range(int(lengths.max())):
        has = lengths > k
        values[has] |= (raw[starts[has] + k].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * k)
    return values.astype(np.int64)


def decode_feature(data: bytes | memoryview) -> tuple[str | None, bytes | memoryview]:
    """Return (name of the list, undecoded list message) of a Feature message, (None, b"") without a value."""
    list_name, body = None, b""
    for field_number, wire, value in fields(data):
        if 1 <= field_number <= len(KINDS) and wire == _BYTES:
            list_name, body = KINDS[field_number - 1], value
    return list_name, body


def split_record(data: bytes | memoryview) -> dict[str, Any]:
    """Return {name: undecoded Feature message} of an OFRecord message."""
    out = {}
    for field_number, wire, entry in fields(data):
        if field_number != 1 or wire != _BYTES:
            continue
        name, value = "", b""
        for inner, inner_wire, part in fields(entry):
            if inner == 1 and inner_wire == _BYTES:
                name = str(part, "utf-8")
            elif inner == 2 and inner_wire == _BYTES:
                value = part
        out[name] = value
    return out
