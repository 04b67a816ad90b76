"""Messages with the part of protobuf's interface that OneFlow's tests use: fields with defaults, nested and
repeated ones.

A class lists its fields: FIELDS = {name: default}. A dict or a class stands for a nested message, a list
for a repeated field, a Map for a map. ONEOF names groups of which one field is set. Setting or reading
another name is an AttributeError.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from typing import Any

from ._tables.graph_operators import DATA_TYPE_NUMBERS

__all__ = ["Map", "Message", "data_type_number"]


def data_type_number(dtype: object, default: int = 0) -> int:
    """The number of a dtype in the messages; `default` (0: no type) for one that OneFlow does not have."""
    return DATA_TYPE_NUMBERS.get(str(dtype).removeprefix("torch."), default)


class Map(dict[Any, Any]):
    """A field of messages by key."""


class _Descriptor:
    """The names of a message class and of its fields, as protobuf's text_format reads them."""

    def __get__(self, message: Message | None, cls: type[Message]) -> types.SimpleNamespace:
        fields = [(message or cls())._field(field) for field in cls.FIELDS]
        return types.SimpleNamespace(
            name=cls.__name__,
            full_name=f"oneflow.{cls.__name__}",
            fields=fields,
            fields_by_name={f.name: f for f in fields},
        )


class Message:
    """Base of the messages; see the docstring of the module."""

    FIELDS: dict[str, Any] = {}
    ONEOF: dict[str, tuple[str, ...]] = {}

    def __init__(self, **values: Any) -> None:
        super().__setattr__("_values", {})
        super().__setattr__("_present", False)
        for name, value in values.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        default = self._default(name)
        if isinstance(default, (Message, list, Map)):  # kept, so that changes made to it stay
            return self._values.setdefault(name, default)
        return self._values.get(name, default)

    def __setattr__(self, name: str, value: Any) -> None:
        default = self._default(name)
        if isinstance(default, Message):
            raise AttributeError(
                f"{type(self).__name__}.{name} is a message: set its fields, or use CopyFrom()"
            )
        if not _has_type_of(default, value):
            raise TypeError(
                f"{type(self).__name__}.{name} takes {type(default).__name__}, found {type(value).__name__}"
                f" {value!r}"
            )
        self._values[name] = value if isinstance(default, (str, list)) else type(default)(value)

    def _default(self, name: str) -> Any:
        if name not in self.FIELDS:
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; it has {', '.join(self.FIELDS)}"
            )
        default = self.FIELDS[name]
        if isinstance(default, Map):
            return Map()
        if isinstance(default, type):
            return default()
        if isinstance(default, dict):
            return type(f"{type(self).__name__}.{name}", (Message,), {"FIELDS": default})()
        return list(default) if isinstance(default, list) else default

    def SetInParent(self) -> None:
        """Mark an empty nested message as present."""
        super().__setattr__("_present", True)

    def HasField(self, name: str) -> bool:
        """Whether the field was set. ValueError for a repeated one."""
        default = self._default(name)
        if isinstance(default, list):
            raise ValueError(f"{type(self).__name__}.{name} is repeated: use len()")
        value = self._values.get(name)
        return value.is_set() if isinstance(value, Message) else name in self._values

    def WhichOneof(self, group: str) -> str | None:
        """The field of the group that is set, or None. ValueError for another name than a group's."""
        if group not in self.ONEOF:
            raise ValueError(
                f"{type(self).__name__} has no group {group!r}; it has {', '.join(self.ONEOF) or 'none'}"
            )
        return next((name for name in self.ONEOF[group] if self.HasField(name)), None)

    def is_set(self) -> bool:
        """Whether anything in this message differs from a fresh one."""
        return self._present or any(
            v.is_set() if isinstance(v, Message) else v not in ([], {}) for v in self._values.values()
        )

    def ClearField(self, name: str) -> None:
        self._default(name)
        self._values.pop(name, None)

    def CopyFrom(self, message: Message) -> None:
        if type(message).__name__ != type(self).__name__:
            raise TypeError(f"CopyFrom() takes {type(self).__name__}, found {type(message).__name__}")
        super().__setattr__("_values", copy.deepcopy(message._values))
        super().__setattr__("_present", message._present)

    def __eq__(self, value: object) -> bool:
        return type(value).__name__ == type(self).__name__ and str(self) == str(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Message:
        copy = type(self)()
        copy.CopyFrom(self)
        return copy

    DESCRIPTOR = _Descriptor()

    def ListFields(self) -> list[tuple[types.SimpleNamespace, Any]]:
        """[(description, value)] of the fields that are set, as protobuf's text_format reads them."""
        return [
            (self._field(name), value)
            for name, value in self._present_fields()
            if value != [] and (not isinstance(value, Message) or value.is_set())
        ]

    def _field(self, name: str) -> types.SimpleNamespace:
        default = self._default(name)
        kind, cpp_kind = next(kinds for cls, kinds in _KINDS if isinstance(default, cls))
        if isinstance(default, list) and self._values.get(name):
            kind, cpp_kind = next(kinds for cls, kinds in _KINDS if isinstance(self._values[name][0], cls))
        is_repeated = isinstance(default, (list, Map))
        return types.SimpleNamespace(
            name=name,
            full_name=f"oneflow.{type(self).__name__}.{name}",
            number=1 + list(self.FIELDS).index(name),
            type=kind,
            cpp_type=cpp_kind,
            label=3 if is_repeated else 1,
            is_repeated=is_repeated,
            is_required=False,
            is_extension=False,
            message_type=types.SimpleNamespace(has_options=False, name=name),
        )

    def _present_fields(self) -> Iterator[tuple[str, Any]]:
        for name in self.FIELDS:
            value = self._values.get(name)
            if isinstance(value, Map):
                value = [_Entry(key=k, value=v) for k, v in sorted(value.items())]
            if value is not None:
                yield name, value

    def __str__(self) -> str:
        lines: list[str] = []
        for name, value in self._present_fields():
            for v in value if isinstance(value, list) else [value]:
                if not isinstance(v, Message):
                    lines.append(f"{name}: {_text(v)}")
                elif v is not value or v.is_set():
                    lines += [f"{name} {{", *(f"  {line}" for line in str(v).splitlines()), "}"]
        return "".join(f"{line}\n" for line in lines)

    __repr__ = __str__


# class of a value -> protobuf's (type, cpp_type) of the field; True is an int, too
_KINDS: tuple[tuple[Any, tuple[int, int]], ...] = (
    (bool, (8, 7)),
    (int, (3, 2)),
    (float, (1, 5)),
    (str, (9, 9)),
    (object, (11, 10)),
)


def _has_type_of(default: Any, value: Any) -> bool:
    """Whether a field with this default takes a value. A float field takes ints, and a bool field 0 and 1."""
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, int if isinstance(default, bool) else type(default))


class _Entry(Message):
    """One entry of a map, for its text."""

    FIELDS = {"key": "", "value": {}}

    def __init__(self, key: Any, value: Any) -> None:
        super().__init__(key=key)
        self._values["value"] = value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
