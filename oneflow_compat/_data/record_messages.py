"""OFRecord messages with the part of protobuf's interface that programs use to write records.

Fields: OFRecord.feature (a map whose entries are created on first access), Feature.bytes_list / float_list /
double_list / int32_list / int64_list (setting one clears the others), XxxList.value (append, extend, [:] =).
The encoded bytes equal those of protobuf, with the names sorted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from . import wire

__all__ = ["OFRecord", "Feature", "BytesList", "FloatList", "DoubleList", "Int32List", "Int64List"]


class DecodeError(ValueError):
    """The bytes are not a message of this type."""


class _Message:
    """Base class of all messages."""

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        self.Clear()
        for name, value in values.items():
            self._assign(name, value)

    def SerializeToString(self, deterministic: bool | None = None) -> bytes:
        return self._encode()

    SerializePartialToString = SerializeToString

    def ParseFromString(self, data: bytes) -> int:
        self.Clear()
        return self.MergeFromString(data)

    def MergeFromString(self, data: bytes) -> int:
        try:
            self._merge(data)
        except (wire.WireError, UnicodeDecodeError) as error:
            raise DecodeError(f"not a {type(self).__name__} message: {error}") from None
        return len(data)

    @classmethod
    def FromString(cls, data: bytes) -> Any:
        message = cls()
        message.ParseFromString(data)
        return message

    def CopyFrom(self, message: Any) -> None:
        if message is not self:
            self.ParseFromString(message.SerializeToString())

    def MergeFrom(self, message: Any) -> None:
        self.MergeFromString(message.SerializeToString())

    def ByteSize(self) -> int:
        return len(self._encode())

    def IsInitialized(self) -> bool:
        return True

    def __eq__(self, message: object) -> bool:
        return type(self) is type(message) and self._encode() == message._encode()

    __hash__ = None

    def __repr__(self) -> str:
        return "\n".join(self._lines("")) + "\n"

    __str__ = __repr__

    def __getstate__(self) -> bytes:
        return self._encode()

    def __setstate__(self, state: bytes) -> None:
        self.Clear()
        self._merge(state)


class _Values(list):
    """A repeated field: a list that checks its items."""

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[Any], Any], items: Iterable[Any] = ()) -> None:
        self._check = check
        super().__init__(check(v) for v in items)

    def append(self, value: Any) -> None:
        super().append(self._check(value))

    def extend(self, values: Iterable[Any]) -> None:
        super().extend([self._check(v) for v in values])

    MergeFrom = extend

    def insert(self, at: Any, value: Any) -> None:
        super().insert(at, self._check(value))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(
            at, [self._check(v) for v in value] if isinstance(at, slice) else self._check(value)
        )

    def __iadd__(self, values: Iterable[Any]) -> _Values:
        self.extend(values)
        return self


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise TypeError(f"{value!r} has type str, but expected one of: bytes")
    return bytes(value)


def _integer(bits: int) -> Callable[[Any], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: Any) -> int:
        integer = value.__index__()
        if not low <= integer <= high:
            raise ValueError(f"value out of range of int{bits}: {integer}")
        return integer

    return check


def _float32(value: Any) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


class _List(_Message):
    __slots__ = ("_value",)
    _kind, _check = None, None

    @property
    def value(self) -> _Values:
        """The repeated field."""
        return self._value

    def _assign(self, name: str, value: Any) -> None:
        if name != "value":
            raise ValueError(f"{type(self).__name__} has no field {name!r}; its field is value")
        self._value[:] = value

    def Clear(self) -> None:
        if hasattr(self, "_value"):
            self._value.clear()
        else:
            self._value = _Values(type(self)._check)

    def _encode(self) -> bytes:
        return wire.encode_list(self._kind, self._value)

    def _merge(self, data: bytes) -> None:
        values = wire.decode_list(self._kind, data)
        self._value.extend(values if self._kind == "bytes_list" else values.tolist())

    def _lines(self, indent: str) -> list[str]:
        return [f"{indent}value: {_text(v)}" for v in self._value]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        escaped = (chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in value)
        return f'"{"".join(escaped)}"'
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def _list_type(name: str, list_name: str, check: Callable[[Any], Any]) -> type:
    return type(
        name,
        (_List,),
        {
            "__slots__": (),
            "_kind": list_name,
            "_check": staticmethod(check),
            "__module__": __name__,
            "__doc__": f"Message {name}: value.",
        },
    )


BytesList = _list_type("BytesList", "bytes_list", _bytes)
FloatList = _list_type("FloatList", "float_list", _float32)
DoubleList = _list_type("DoubleList", "double_list", float)
Int32List = _list_type("Int32List", "int32_list", _integer(32))
Int64List = _list_type("Int64List", "int64_list", _integer(64))
_TYPES = {
    "bytes_list": BytesList,
    "float_list": FloatList,
    "double_list": DoubleList,
    "int32_list": Int32List,
    "int64_list": Int64List,
}


class Feature(_Message):
    """One field of a record: one of five lists."""

    __slots__ = ("_lists",)

    def Clear(self) -> None:
        self._lists = {}

    def WhichOneof(self, group: str) -> str | None:
        """Return the name of the list that is set, or None. The group is called kind."""
        if group != "kind":
            raise ValueError(f"Feature has no oneof field {group!r}; it has kind")
        for list_name, message in self._lists.items():
            if message.value:
                return list_name
        return next(iter(self._lists), None) if len(self._lists) == 1 else None

    def HasField(self, name: str) -> bool:
        return self.WhichOneof("kind") == name

    def ClearField(self, name: str) -> None:
        self._lists.pop(name, None)

    def _list(self, list_name: str) -> Any:
        if list_name not in self._lists:
            kept = [k for k, message in self._lists.items() if message.value]
            message = _TYPES[list_name]()
            message._value = _Chosen(self, list_name, message._value._check)
            self._lists = {k: self._lists[k] for k in kept} | {list_name: message}
        return self._lists[list_name]

    def _assign(self, name: str, value: Any) -> None:
        if name not in _TYPES:
            raise ValueError(f"Feature has no field {name!r}; it has {', '.join(_TYPES)}")
        self._list(name).CopyFrom(value)

    def _encode(self) -> bytes:
        list_name = self.WhichOneof("kind")
        return b"" if list_name is None else wire.encode_feature(list_name, self._lists[list_name].value)

    def _merge(self, data: bytes) -> None:
        list_name, body = wire.decode_feature(data)
        if list_name is not None:
            message = _TYPES[list_name]()
            message._merge(body)
            self._lists = {list_name: message}

    def _lines(self, indent: str) -> list[str]:
        list_name = self.WhichOneof("kind")
        if list_name is None:
            return []
        return [f"{indent}{list_name} {{", *self._lists[list_name]._lines(indent + "  "), f"{indent}}}"]


class _Chosen(_Values):
    """The values of one list of a Feature. Setting a value clears the other lists."""

    __slots__ = ("_feature", "_kind")

    def __init__(self, feature: Feature, list_name: str, check: Callable[[Any], Any]) -> None:
        super().__init__(check)
        self._feature, self._kind = feature, list_name

    def _choose(self) -> None:
        self._feature._lists = {self._kind: self._feature._lists[self._kind]}

    def append(self, value: Any) -> None:
        super().append(value)
        self._choose()

    def extend(self, values: Iterable[Any]) -> None:
        super().extend(values)
        self._choose()

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value)
        self._choose()


for _kind in _TYPES:
    setattr(
        Feature,
        _kind,
        property(lambda self, list_name=_kind: self._list(list_name), doc=f"The {_kind} message."),
    )


class _Features(dict):
    """The map `feature`. Access creates a missing entry."""

    def __missing__(self, name: str) -> Feature:
        if not isinstance(name, str):
            raise TypeError(f"a feature's name is a str, found {name!r}")
        message = self[name] = Feature()
        return message

    def get_or_create(self, name: str) -> Feature:
        return self[name]


class OFRecord(_Message):
    """A record: named features."""

    __slots__ = ("feature",)

    def Clear(self) -> None:
        self.feature = _Features()

    def _assign(self, name: str, value: Any) -> None:
        if name != "feature":
            raise ValueError(f"OFRecord has no field {name!r}; its field is feature")
        for key, item in value.items():
            self.feature[key].CopyFrom(item)

    def _encode(self) -> bytes:
        fields = {}
        for name, message in self.feature.items():
            list_name = message.WhichOneof("kind")
            fields[name] = list_name, message._lists[list_name].value if list_name else ()
        return wire.encode_record(fields)

    def _merge(self, data: bytes) -> None:
        for name, part in wire.split_record(data).items():
            message = self.feature[name] = Feature()
            message._merge(part)

    def _lines(self, indent: str) -> list[str]:
        out = []
        for name in sorted(self.feature):
            out += [
                f"{indent}feature {{",
                f'{indent}  key: "{name}"',
                f"{indent}  value {{",
                *self.feature[name]._lines(indent + "    "),
                f"{indent}  }}",
                f"{indent}}}",
            ]
        return out
