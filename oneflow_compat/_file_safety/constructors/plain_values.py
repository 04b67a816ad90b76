"""Checked constructors of Python's plain values.

Each takes the budget first and refuses arguments that no pickler writes.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import fractions
import itertools
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import RefusedError

if TYPE_CHECKING:
    from ..budget import Budget


_DIGITS = 4300  # Python's own limit for int(text)
_PAIR, _ELEMENT = 100, 16
_SHOWN = 8  # classes of arguments in a message


def refuse(name: str, arguments: Iterable[Any]) -> NoReturn:
    """Raise RefusedError for arguments that no pickler writes."""
    classes = ", ".join(type(a).__name__ for a in itertools.islice(arguments, _SHOWN))
    raise RefusedError(
        f"altered or hostile: {name}({classes}) is not how a {name} is saved. If you trust the file, load it"
        " with weights_only=False"
    )


def _elements(budget: Budget, name: Any, arguments: Any) -> Any:
    """Return the container that is the only argument, or an empty tuple if there is none."""
    if not arguments:
        return ()
    if len(arguments) != 1 or type(arguments[0]) not in (list, tuple, set, frozenset):
        refuse(name, arguments)
    budget.charge_objects(_ELEMENT * len(arguments[0]), name)
    return arguments[0]


def _set(make: Any) -> Any:
    def construct(budget: Budget, *arguments: Any) -> Any:
        elements = _elements(budget, make.__name__, arguments)
        for element in elements:
            budget.check_key(element)
        budget.charge_objects(_PAIR * len(elements), make.__name__)
        return make(elements)

    return construct


def _complex(budget: Budget, *arguments: Any) -> Any:
    if len(arguments) > 2 or any(type(a) not in (int, float) for a in arguments):
        refuse("complex", arguments)
    return complex(*arguments)


def _latin1(budget: Budget, string: Any, encoding: Any) -> bytes:
    """Return bytes as protocol 2 writes them: codecs.encode(text, "latin1")."""
    if type(string) is not str or encoding not in ("latin1", "latin-1"):
        refuse("_codecs.encode", (string, encoding))
    budget.charge_data(len(string), "bytes")
    return string.encode("latin1")


def _bytes(budget: Budget, *arguments: Any) -> Any:
    if arguments:
        refuse("bytes", arguments)
    return b""


def _bytearray(budget: Budget, *arguments: Any) -> Any:
    if not arguments:
        return bytearray()
    if len(arguments) == 2:
        return bytearray(_latin1(budget, *arguments))
    if len(arguments) != 1 or type(arguments[0]) is not bytes:
        refuse("bytearray", arguments)
    budget.charge_data(len(arguments[0]), "a bytearray")
    return bytearray(arguments[0])


def _slice_or_range(make: Any) -> Any:
    def construct(budget: Budget, *arguments: Any) -> Any:
        if not 1 <= len(arguments) <= 3 or any(a is not None and type(a) is not int for a in arguments):
            refuse(make.__name__, arguments)
        return make(*arguments)

    return construct


def _ordered(budget: Budget, *arguments: Any) -> Any:
    out: collections.OrderedDict[Any, Any] = collections.OrderedDict()
    for pair in _elements(budget, "OrderedDict", arguments):  # Python 2 wrote the pairs
        if type(pair) not in (list, tuple) or len(pair) != 2:
            refuse("OrderedDict", arguments)
        budget.check_key(pair[0])
        out[pair[0]] = pair[1]
    budget.charge_objects(_PAIR * (len(out) + 2), "an OrderedDict")
    return out


def _counter(budget: Budget, *arguments: Any) -> Any:
    if len(arguments) > 1 or any(type(a) is not dict for a in arguments):
        refuse("Counter", arguments)
    budget.charge_objects(_PAIR * sum(map(len, arguments), 2), "a Counter")
    return collections.Counter(*arguments)


def _deque(budget: Budget, elements: Any = (), length: Any = None) -> Any:
    if length is not None and (type(length) is not int or length < 0):
        refuse("deque", (elements, length))
    budget.charge_objects(640, "a deque")
    return collections.deque(_elements(budget, "deque", (elements,)), length)


_FACTORIES = (
    *(list, dict, set, tuple, int, float, bool, str, None),
    *(collections.OrderedDict, collections.Counter),
)


def _defaultdict(budget: Budget, *arguments: Any) -> Any:
    factory = arguments[0] if arguments else None
    if len(arguments) > 1 or not any(factory is f for f in _FACTORIES):
        refuse("defaultdict", arguments)
    budget.charge_objects(_PAIR, "a defaultdict")
    return collections.defaultdict(factory)


_STATE_SIZES = {datetime.datetime: 10, datetime.date: 4, datetime.time: 6}


def _moment(cls: Any) -> Any:
    """Return the constructor of a date, time or datetime from its packed bytes. It checks the fields, because
    Python's C code does not.
    """

    def construct(budget: Budget, state: Any, *zone: Any) -> Any:
        has_zone = len(zone) <= 1 and all(isinstance(z, datetime.timezone) for z in zone)
        if type(state) is not bytes or len(state) != _STATE_SIZES[cls] or not has_zone:
            refuse(cls.__name__, (state, *zone))
        fields: Any = list(state)
        fold = 0
        if cls is not datetime.date:
            fields[-3:] = [fields[-3] << 16 | fields[-2] << 8 | fields[-1]]
        if cls is datetime.time:
            fold, fields[0] = divmod(fields[0], 128)
            return cls(*fields, *zone, fold=fold)
        fields[:2] = [fields[0] << 8 | fields[1]]
        if cls is datetime.date:
            return cls(*fields)
        fold, fields[1] = divmod(fields[1], 128)
        return cls(*fields, *zone, fold=fold)

    return construct


def _of_integers(make: Any, most: int) -> Any:
    def construct(budget: Budget, *arguments: Any) -> Any:
        if len(arguments) > most or any(type(a) is not int for a in arguments):
            refuse(make.__name__, arguments)
        return make(*arguments)

    return construct


def _timezone(budget: Budget, offset: Any, *name: Any) -> Any:
    if type(offset) is not datetime.timedelta or len(name) > 1 or any(type(n) is not str for n in name):
        refuse("timezone", (offset, *name))
    return datetime.timezone(offset, *name)


def _decimal(budget: Budget, string: Any) -> Any:
    if type(string) is not str or len(string) > _DIGITS:
        refuse("Decimal", (string,))
    budget.charge_objects(100 + len(string), "a Decimal")
    return decimal.Decimal(string)


def _fraction(budget: Budget, *arguments: Any) -> Any:
    if (
        len(arguments) == 1
        and type(arguments[0]) is str
        and len(arguments[0]) <= _DIGITS
        and re.fullmatch(r"-?\d+(/\d+)?", arguments[0])
    ):
        budget.charge_objects(4 * len(arguments[0]), "a Fraction")  # time of the greatest common divisor
        return fractions.Fraction(arguments[0])
    if len(arguments) != 2 or any(type(a) is not int or a.bit_length() > 4 * _DIGITS for a in arguments):
        refuse("Fraction", arguments)
    budget.charge_objects(sum(a.bit_length() for a in arguments), "a Fraction")
    return fractions.Fraction(*arguments)


def _path(name: Any) -> Any:
    def construct(budget: Budget, *parts: Any) -> Any:
        if any(type(p) is not str for p in parts):
            refuse(name, parts)
        budget.charge_objects(sum(map(len, parts), 500), "a path")
        make = getattr(pathlib, name)
        is_concrete = make in (pathlib.PosixPath, pathlib.WindowsPath)
        foreign = is_concrete and not issubclass(type(pathlib.Path()), make)
        return getattr(pathlib, f"Pure{name}" if foreign else name)(*parts)

    return construct


def _empty(make: Any) -> Any:
    """Return the constructor of an object without state. The state follows as a dict of attributes."""

    def construct(budget: Budget, *arguments: Any) -> Any:
        if arguments:
            refuse(make.__name__, arguments)
        budget.charge_objects(400, make.__name__)
        return make.__new__(make)

    return construct


def build_uuid(value: uuid.UUID, state: object) -> None:
    """Set the integer of a UUID."""
    integer = state.get("int") if type(state) is dict else None
    if type(integer) is not int or not 0 <= integer < 1 << 128 or hasattr(value, "int"):
        refuse("UUID", (state,))
    object.__setattr__(value, "int", integer)
    object.__setattr__(value, "is_safe", uuid.SafeUUID.unknown)


_PATHS = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")

CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "builtins.set": _set(set),
    "builtins.frozenset": _set(frozenset),
    "builtins.complex": _complex,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "_codecs.encode": _latin1,  # how protocol 2 writes bytes
    "builtins.slice": _slice_or_range(slice),
    "builtins.range": _slice_or_range(range),
    "builtins.xrange": _slice_or_range(range),
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "collections.deque": _deque,
    "collections.defaultdict": _defaultdict,
    "datetime.datetime": _moment(datetime.datetime),
    "datetime.date": _moment(datetime.date),
    "datetime.time": _moment(datetime.time),
    "datetime.timedelta": _of_integers(datetime.timedelta, 3),
    "datetime.timezone": _timezone,  # checkpoints record when a run was saved
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
    "uuid.UUID": _empty(uuid.UUID),
    **{f"pathlib.{name}": _path(name) for name in _PATHS},  # checkpoints record the folders of a run
    "argparse.Namespace": _empty(argparse.Namespace),
    "types.SimpleNamespace": _empty(types.SimpleNamespace),  # checkpoints record the options of a run
}
