"""OneRec files: framed flatbuffers messages, each a table of named tensors.

A record is a header, the payload (padded to a multiple of 8 bytes), and the xxHash64 of the payload. The
header is 8 bytes `^ONEREC$`, 4 zero bytes, 4 bytes for the length of the payload, and the xxHash64 of these
16 bytes, big-endian. The payload is a flatbuffer with the identifier `1REC`:

    Example { features: [Feature] }     sorted by key
    Feature { key: string; tensor: Tensor }
    Tensor  { shape: [int32]; data: union of Int8List, Int16List, Int32List, Int64List, Float32List,
              Float64List, StringList, BinaryList, each { values: [...] } }

The format has no published description. It was derived by testing which files the original OneFlow 0.9.0
reads.
"""

from __future__ import annotations

import os
import struct
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._file_safety.shown import reason, shown, shown_names
from . import records, shuffle
from .buffers import TensorBuffer, to_numpy_dtype

_HEAD = struct.Struct("<QII")
_MAGIC = int.from_bytes(b"^ONEREC$", "little")
_IDENTIFIER = b"1REC"
# index of a table in the union -> dtype
_KINDS = {1: np.int8, 2: np.int16, 3: np.int32, 4: np.int64, 5: np.float32, 6: np.float64}
_STRINGS = 7
_DECODED = (torch.int8, torch.int32, torch.int64, torch.float32, torch.float64)


def _need(package: str) -> types.ModuleType:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        raise ModuleNotFoundError(
            f"OneRec files need the package {package}, which is not installed: pip install"
            " oneflow-compat[onerec]"
        ) from None


def _digest(data: Any) -> bytes:
    return _need("xxhash").xxh64(data).digest()


# --------------------------------------------------------------------------- writing
class OneRecWriter(records.PartFile):
    """Write OneRec files: `with OneRecWriter(path) as out: out.write({"x": array, "name": "text"})`.

    A value is an array or tensor of int8, int16, int32, int64, float32 or float64 (its shape is kept), a str,
    or a list of str. Python numbers are int64 or float64. TypeError for anything else.
    """

    def write(self, record: dict[str, Any]) -> int:
        """Append one record and return its offset."""
        payload, offset = _encode(record), self._file.tell()
        head = _HEAD.pack(_MAGIC, 0, len(payload))
        self._file.write(b"".join((head, _digest(head), payload, bytes(-len(payload) % 8), _digest(payload))))
        self.count += 1
        return offset


def _encode(record: Mapping[str, Any]) -> bytes:
    builder = _need("flatbuffers").Builder(0)
    features = []
    for key in sorted(record, key=str.encode):
        type_code, shape, values = _values(builder, key, record[key])
        table = _table(builder, values)
        tensor = _table(builder, builder.CreateNumpyVector(np.asarray(shape, np.int32)), type_code, table)
        features.append(_table(builder, builder.CreateString(key), tensor))
    builder.Finish(_table(builder, _offsets(builder, features)), _IDENTIFIER)
    return bytes(builder.Output())


def _values(builder: Any, key: str, value: Any) -> tuple[Any, ...]:
    """Return (index of the table in the union, shape, vector) of one field."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, (list, tuple)) and texts and all(isinstance(v, str) for v in texts):
        return _STRINGS, [len(texts)], _offsets(builder, [builder.CreateString(v) for v in texts])
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    for type_code, dtype in _KINDS.items():
        if array.dtype == dtype:
            return type_code, array.shape, builder.CreateNumpyVector(np.ascontiguousarray(array).ravel())
    names = ", ".join(np.dtype(d).name for d in _KINDS.values())
    raise TypeError(
        f"field {key!r}: a value is numbers ({names}), a str or a list of str; found {type(value).__name__}"
        f" of {array.dtype}"
    )


def _table(builder: Any, *fields: Any) -> int:
    """Return a table of offsets. A field between two offsets is the one-byte index of a table in the
    union.
    """
    has_union = len(fields) == 3
    builder.StartObject(len(fields))
    for slot, field in enumerate(fields):
        if has_union and slot == 1:
            builder.PrependUint8Slot(slot, field, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, field, 0)
    return builder.EndObject()


def _offsets(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


# --------------------------------------------------------------------------- reading
class Batch(TensorBuffer):
    """The payloads of a batch of records, and the location of each."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        pairs = list(pairs)
        super().__init__([payload for payload, _ in pairs])
        self.where = [where for _, where in pairs]


def read_file(path: str | os.PathLike[str], verify: bool = True) -> Iterator[tuple[np.ndarray, str]]:
    """Yield (payload as uint8 array, "file, record at byte n") of every record. Raise CorruptRecord if a
    record is damaged.

    verify: parse the message too. Lengths and digests are always checked.
    """
    view, at = memoryview(records._map(path)), 0
    while at < len(view):
        where = f"{path}, record at byte {at}"
        if len(view) - at < 24:
            raise records.CorruptRecord(f"{where}: {len(view) - at} bytes are left, a record begins with 24")
        magic, reserved, size = _HEAD.unpack_from(view, at)
        if magic != _MAGIC or reserved or view[at + 16 : at + 24] != _digest(view[at : at + 16]):
            raise records.CorruptRecord(f"{where}: this is no header of a OneRec record")
        begin, last = at + 24, at + 24 + size + -size % 8
        if last + 8 > len(view):
            raise records.CorruptRecord(f"{where}: its length is {size}, {len(view) - begin} bytes are left")
        payload = view[begin : begin + size]
        if view[last : last + 8] != _digest(payload):
            raise records.CorruptRecord(f"{where}: its digest is another one, the record was altered")
        if verify:
            parse(payload, where)
        yield np.frombuffer(payload, np.uint8), where
        at = last + 8


class OneRecStream(records.RecordStream):
    """The endless stream of the records of some files; with shuffle_after_epoch the first epoch is shuffled
    too, as in OneFlow.
    """

    def __init__(
        self,
        paths: Sequence[str],
        shuffle_after_epoch: bool = False,
        rank: int = 0,
        ranks: int = 1,
        verify: bool = True,
    ) -> None:
        super().__init__(paths, shuffle_after_epoch, rank, ranks)
        self._verify = verify

    def _read(self, path: str | os.PathLike[str]) -> Iterator[Any]:
        return read_file(path, self._verify)

    def _begin_epoch(self) -> None:
        if self._shuffled:
            shuffle.epoch_shuffle(self._paths, max(self.epoch - 1, 0))


def parse(payload: Any, where: str) -> dict[str, Any]:
    """Return {key: (array or list of str, shape)} of a message. Raise CorruptRecord if it is damaged."""
    table, number_types = _need("flatbuffers").table.Table, _need("flatbuffers").number_types
    try:
        if bytes(payload[4:8]) != _IDENTIFIER:
            raise ValueError(f"its identifier is {shown(bytes(payload[4:8]))}, not {_IDENTIFIER!r}")
        data = bytes(payload)
        left = [_MOST_TEXT + 8 * len(data)]
        field = lambda t, slot: t.Offset(4 + 2 * slot)
        below = lambda t, slot: table(data, t.Indirect(t.Pos + field(t, slot)))
        root = table(data, int.from_bytes(data[:4], "little"))
        out: dict[str, tuple[Any, Any]] = {}
        for i in range(root.VectorLen(field(root, 0)) if field(root, 0) else 0):
            feature = table(data, root.Indirect(root.Vector(field(root, 0)) + 4 * i))
            key, tensor = _text(feature, feature.Pos + field(feature, 0), left), below(feature, 1)
            type_code = (
                tensor.Get(number_types.Uint8Flags, tensor.Pos + field(tensor, 1)) if field(tensor, 1) else 0
            )
            shape = _vector(data, tensor, field(tensor, 0), np.int32).tolist()
            values = below(tensor, 2)
            if type_code in _KINDS:
                array = _vector(data, values, field(values, 0), _KINDS[type_code])
                if array.size != np.prod(shape, dtype=np.int64):
                    raise ValueError(f"field {shown(key)} has {array.size} values for shape {shown(shape)}")
                out[key] = array, shape
            elif type_code == _STRINGS:
                at, count = values.Vector(field(values, 0)), values.VectorLen(field(values, 0))
                out[key] = [_text(values, at + 4 * j, left) for j in range(count)], shape
            else:
                out[key] = None, shape
        return out
    except (ValueError, IndexError, struct.error, TypeError) as error:
        raise records.CorruptRecord(f"{where}: not a OneRec message: {reason(error)}") from None


_MOST_TEXT = 64 << 20  # bytes of text allowed in every message, because many offsets may refer to one string


def _text(table: Any, at: int, left: list[int]) -> str:
    """Return a string. Raise ValueError if all strings together have more bytes than `left` allows."""
    body = table.String(at)
    left[0] -= len(body) + 64
    if left[0] < 0:
        raise ValueError("its strings are longer than the message")
    return body.decode()


def _vector(data: Any, table: Any, offset: int, dtype: Any) -> np.ndarray:
    if not offset:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, table.VectorLen(offset), table.Vector(offset))


# --------------------------------------------------------------------------- decoding
def decode(
    batch: Batch,
    key: str,
    dtype: torch.dtype,
    shape: Sequence[int],
    is_dynamic: bool = False,
    reshape: Sequence[int] | None = None,
    batch_padding: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return the field `key` of every record, (batch, *shape) of `dtype`; see oneflow.decode_onerec."""
    shape = tuple(shape)
    _check_decode(batch, dtype, shape, reshape, batch_padding)
    arrays = [
        _field(payload, where, key, to_numpy_dtype(dtype), len(shape), reshape)
        for payload, where in zip(batch.cells, batch.where)
    ]
    shape = _fitting_shape(key, _common_shape(key, arrays, batch_padding), shape, is_dynamic)
    out = np.zeros((len(arrays), *shape), to_numpy_dtype(dtype))
    for row, array in zip(out, arrays):
        row[: array.shape[0]] = array
    return torch.from_numpy(out)


def _check_decode(
    batch: object,
    dtype: torch.dtype,
    shape: Sequence[int],
    reshape: Sequence[int] | None,
    batch_padding: Sequence[int] | None,
) -> None:
    """Raise an error for arguments that decode_onerec does not support."""
    if not isinstance(batch, Batch):
        raise TypeError(f"decode_onerec takes what OneRecReader gives, found {type(batch).__name__}")
    if dtype not in _DECODED:
        raise NotImplementedError(
            f"decode_onerec: dtype is one of {', '.join(map(str, _DECODED))}, found {dtype}"
        )
    for name, target in (("reshape", reshape), ("batch_padding", batch_padding)):
        if target is not None and len(target) != len(shape):
            raise ValueError(
                f"decode_onerec: {name} {tuple(target)} must have as many dimensions as shape {shape}"
            )
    if batch_padding is not None and any(batch_padding[1:]):
        raise NotImplementedError(
            f"decode_onerec: batch_padding fills up the first dimension only; found {tuple(batch_padding)}"
        )


def _common_shape(
    key: str, arrays: Sequence[np.ndarray], batch_padding: Sequence[int] | None
) -> tuple[Any, ...]:
    """Return the shape of all arrays, padded along the first dimension; RuntimeError if they have several."""
    shapes = {a.shape for a in arrays}
    if batch_padding is not None and batch_padding[0]:
        longest = max((a.shape[0] for a in arrays), default=0)
        if longest > batch_padding[0]:
            raise RuntimeError(
                f"decode_onerec: batch_padding is {batch_padding[0]}, field {key!r} of the batch has up to"
                f" {longest}"
            )
        shapes = {(batch_padding[0], *s[1:]) for s in shapes}
    if len(shapes) != 1:
        raise RuntimeError(
            f"decode_onerec: field {key!r} has several shapes in one batch, {shown(sorted(shapes))};"
            " batch_padding=[n, 0, ...] fills them up"
        )
    return shapes.pop()


def _fitting_shape(
    key: str, actual: tuple[Any, ...], shape: tuple[Any, ...], is_dynamic: bool
) -> tuple[Any, ...]:
    """Return the actual shape if it is the requested one, or a smaller one if that is allowed."""
    size = np.prod(actual, dtype=np.int64)
    if is_dynamic and len(actual) == len(shape) and size <= np.prod(shape, dtype=np.int64):
        return actual
    if actual != shape:
        raise RuntimeError(
            f"decode_onerec: field {key!r} has shape {shown(list(actual))}, asked for"
            f" {'at most ' if is_dynamic else ''}{list(shape)}"
        )
    return shape


def _field(
    payload: Any, where: str, key: str, dtype: Any, dims: int, reshape: Sequence[int] | None
) -> np.ndarray:
    """Return a field of a record with this dtype and count of dimensions, or in the shape `reshape`."""
    fields = parse(payload, where)
    if key not in fields:
        raise KeyError(f"{where}: there is no field {key!r}; the record has {shown_names(fields)}")
    array, shape = fields[key]
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        content = "text" if isinstance(array, list) else "bytes"
        if isinstance(array, np.ndarray):
            content = array.dtype.name
        raise RuntimeError(f"{where}: field {key!r} holds {content}, asked for {np.dtype(dtype).name}")
    if reshape is None and len(shape) != dims or dims == 0:
        raise RuntimeError(
            f"{where}: field {key!r} has shape {shown(shape)}, asked for {dims}"
            f" dimension{'s' * (dims != 1)} (at"
            " least one)"
        )
    try:
        return array.reshape(shape if reshape is None else tuple(reshape))
    except ValueError:
        raise RuntimeError(
            f"{where}: field {key!r} of shape {shown(shape)} cannot become {list(reshape or ())}"
        ) from None
