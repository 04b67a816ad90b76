"""Values of a file in messages: short printable text, whatever the file holds.

A list that holds one list many times prints as gigabytes. A number has millions of digits. So messages never
call str() or repr() of a value from a file; tests/files/test_shown.py forbids it.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

_OBJECTS, _ITEMS, _DEPTH = 40, 8, 4  # limits of one message
_CHARACTERS, _BYTES, _BITS = 100, 40, 256
_LENGTH, _NAMES = 160, 20
_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)


def shown(value: object, length: int = _LENGTH) -> str:
    """Return a value from a file as printable text of at most `length` characters.

    At most 40 objects are visited. An object of a class that is not plain is described by its class.
    """
    printed = _printed(value, 0, itertools.count())
    return printed if len(printed) <= length else printed[: length - 3] + "..."


def shown_names(names: Collection[object]) -> str:
    """Return the names in a file, at most 20 of them, separated by commas."""
    printed = [shown(name) for name in itertools.islice(names, _NAMES)]
    return (", ".join(printed) or "none") + (", ..." if len(names) > _NAMES else "")


def title(target: object) -> str:
    """Return the name of a class or function, and the class of any other object."""
    if isinstance(target, type | types.FunctionType | types.BuiltinFunctionType):
        return plain_text(target.__name__)
    return f"a {type(target).__name__}"


def plain_text(text: str, length: int = 300) -> str:
    """Return the first line of a text, cut, with escapes for characters that are not printable."""
    line = text[:length].split("\n", 1)[0]
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def reason(error: BaseException) -> str:
    """Return what an error says, if it is text. The argument of a KeyError may be any value of a file."""
    if isinstance(error, UnicodeError):
        return plain_text(str(error))
    argument = error.args[0] if error.args else ""
    return plain_text(argument) if type(argument) is str else shown(argument)


def _printed(value: Any, depth: int, visited: itertools.count[int]) -> str:
    if next(visited) >= _OBJECTS or depth > _DEPTH:
        return "..."
    if isinstance(value, int):
        return repr(int(value) if type(value) is not bool else value) if _is_short(value) else _digits(value)
    if value is None or type(value) in (float, complex):
        return repr(value)
    if isinstance(value, str | bytes | bytearray):
        return _text(value)
    if isinstance(value, list | tuple | set | frozenset | dict):
        return _container(value, depth, visited)
    if isinstance(value, _CONSTANTS):
        return str(value)
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of {value.dtype}"
    return title(value) if isinstance(value, type) else f"a {type(value).__name__}"


def _is_short(value: int) -> bool:
    return int.bit_length(value) <= _BITS


def _digits(value: int) -> str:
    return f"an integer of {int.bit_length(value)} bits"


def _text(value: str | bytes | bytearray) -> str:
    most = _CHARACTERS if isinstance(value, str) else _BYTES
    cut = str.__getitem__(value, slice(most)) if isinstance(value, str) else bytes(memoryview(value)[:most])
    return repr(cut) + ("..." if len(value) > most else "")


_BRACKETS: dict[Any, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}


def _container(value: Any, depth: int, visited: itertools.count[int]) -> str:
    base = next(cls for cls in _BRACKETS if isinstance(value, cls))
    brackets = _BRACKETS[base]
    printed = [_printed(item, depth + 1, visited) for item in itertools.islice(base.__iter__(value), _ITEMS)]
    if base is dict:
        values = itertools.islice(dict.values(value), _ITEMS)
        printed = [f"{k}: {_printed(v, depth + 1, visited)}" for k, v in zip(printed, values)]
    rest = ", ..." if base.__len__(value) > _ITEMS else ""
    comma = "," if base is tuple and base.__len__(value) == 1 else ""
    return f"{brackets[0]}{', '.join(printed)}{comma}{rest}{brackets[1]}"
