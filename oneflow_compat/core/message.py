"""Messages with the part of protobuf's interface that OneFlow's tests use: fields with defaults, nested and repeated ones.

A class lists its fields: FIELDS = {name: default}. A dict stands for a nested message, a list for a
repeated field. Setting or reading another name is an AttributeError.
"""
from __future__ import annotations

import copy

__all__ = ["Message"]


class Message:
    FIELDS: dict = {}

    def __init__(self, **values):
        super().__setattr__("_values", {})
        super().__setattr__("_present", False)
        for name, value in values.items():
            setattr(self, name, value)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        default = self._default(name)
        if isinstance(default, (Message, list)):  # kept, so that changes made to it stay
            return self._values.setdefault(name, default)
        return self._values.get(name, default)

    def __setattr__(self, name, value):
        default = self._default(name)
        if isinstance(default, Message):
            raise AttributeError(f"{type(self).__name__}.{name} is a message: set its fields, or use CopyFrom()")
        numbers = isinstance(value, (int, float)) and not isinstance(value, bool)
        right = numbers if isinstance(default, float) else isinstance(value, (bool, int)) if isinstance(default, bool) else isinstance(value, type(default))
        if not right:
            raise TypeError(f"{type(self).__name__}.{name} takes {type(default).__name__}, found {type(value).__name__} {value!r}")
        self._values[name] = value if isinstance(default, (str, list)) else type(default)(value)

    def _default(self, name):
        if name not in self.FIELDS:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(self.FIELDS)}")
        default = self.FIELDS[name]
        if isinstance(default, dict):
            return type(f"{type(self).__name__}.{name}", (Message,), {"FIELDS": default})()
        return list(default) if isinstance(default, list) else default

    def SetInParent(self):
        """Mark an empty nested message as present."""
        super().__setattr__("_present", True)

    def HasField(self, name) -> bool:
        """Was the field set? ValueError for a repeated one."""
        default = self._default(name)
        if isinstance(default, list):
            raise ValueError(f"{type(self).__name__}.{name} is repeated: use len()")
        value = self._values.get(name)
        return value.is_set() if isinstance(value, Message) else name in self._values

    def is_set(self) -> bool:
        """Does anything in this message differ from a fresh one?"""
        return self._present or any(v.is_set() if isinstance(v, Message) else v != [] for v in self._values.values())

    def ClearField(self, name):
        self._default(name)
        self._values.pop(name, None)

    def CopyFrom(self, other):
        if type(other).__name__ != type(self).__name__:
            raise TypeError(f"CopyFrom() takes {type(self).__name__}, found {type(other).__name__}")
        super().__setattr__("_values", copy.deepcopy(other._values))
        super().__setattr__("_present", other._present)

    def __eq__(self, other):
        return type(other).__name__ == type(self).__name__ and str(self) == str(other)

    def __deepcopy__(self, memo):
        made = type(self)()
        made.CopyFrom(self)
        return made

    def __str__(self):
        lines = []
        for name in self.FIELDS:
            value = self._values.get(name)
            for v in value if isinstance(value, list) else [] if value is None else [value]:
                if not isinstance(v, Message):
                    lines.append(f"{name}: {_text(v)}")
                elif v is not value or v.is_set():
                    lines += [f"{name} {{", *(f"  {line}" for line in str(v).splitlines()), "}"]
        return "".join(f"{line}\n" for line in lines)

    __repr__ = __str__


def _text(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else str(value)
