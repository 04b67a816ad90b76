"""Checks of the JSON text of a saved graph: each reader takes a value and its location in the file, and
returns the value or raises.

Readers are combined: `listed(integer(0))` accepts a list of nonnegative integers, `record(name=text)` an
object with the single key "name". A value that no reader has checked never reaches the rest of the package.
"""

from __future__ import annotations

import collections
import json
import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias

from ..._file_safety.errors import CheckpointError
from ..._file_safety.shown import reason, shown
from ..errors import ProgramError

Reader: TypeAlias = "Callable[[object, str], Any]"  # (value, its location) -> the checked value

INT64 = -(2**63), 2**63 - 1
_LONGEST_LABEL = 10_000
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class PackageError(ProgramError, CheckpointError):
    """A saved program cannot be written or read; the message names the file and the defect."""


def refuse(location: str, expected: str, value: object) -> PackageError:
    """Return the error for a value that a saved graph must not hold."""
    return PackageError(
        f"{location}: {expected} is needed, found {shown(value)}; the file is damaged or was not written by"
        " graph.save(), save the graph again"
    )


def inside(location: str, key: str) -> str:
    """Return the location of a key of an object. A top-level key follows the path of the file and a colon."""
    return f"{location} {key}" if location.endswith(":") else f"{location}.{key}"


def parse(data: bytes, location: str) -> object:
    """Parse a JSON text. An object must not name a key twice."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            left = collections.Counter(k for k, _ in pairs)
            repeated = next(k for k, count in left.items() if count > 1)
            raise PackageError(
                f"{location} is damaged: an object names the key {shown(repeated)} twice; save the graph"
                " again"
            )
        return members

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except PackageError:
        raise
    except RecursionError:
        raise PackageError(
            f"{location} is damaged: its values are nested too deeply; save the graph again"
        ) from None
    except ValueError as error:
        raise PackageError(f"{location} is damaged: {reason(error)}; save the graph again") from None


# --------------------------------------------------------------------------- single values
def boolean(value: object, location: str) -> bool:
    if type(value) is not bool:
        raise refuse(location, "true or false", value)
    return value


def integer(least: int = INT64[0], most: int = INT64[1]) -> Reader:
    def read(value: object, location: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise refuse(location, f"an integer from {least} to {most}", value)
        return value

    return read


def number(value: object, location: str) -> int | float:
    """Read a finite number."""
    if type(value) is int and INT64[0] <= value <= INT64[1] or type(value) is float and math.isfinite(value):
        return value
    raise refuse(location, "a finite number", value)


def text(value: object, location: str) -> str:
    if type(value) is not str:
        raise refuse(location, "a text", value)
    return value


def label(value: object, location: str) -> str:
    """Read a text for people, without control characters (a line of a comment stays one line) and without
    lone surrogates.
    """
    if type(value) is not str or len(value) > _LONGEST_LABEL or not is_one_line(value):
        raise refuse(location, f"a text of one line, of at most {_LONGEST_LABEL} characters,", value)
    return value


def is_one_line(string: str) -> bool:
    """Whether a string has no control characters, line breaks and lone surrogates."""
    return string.isprintable() or not any(
        unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in string
    )


def identifier(value: object, location: str) -> str:
    if type(value) is not str or len(value) > _LONGEST_LABEL or not _IDENTIFIER.match(value):
        raise refuse(location, "a name of letters, digits and underscores", value)
    return value


def choice(*allowed: str) -> Reader:
    def read(value: object, location: str) -> str:
        if type(value) is not str or value not in allowed:
            raise refuse(location, f"one of {', '.join(allowed)}", value)
        return value

    return read


def anything(value: object, location: str) -> object:
    """Accept any value; another reader checks it later."""
    return value


# --------------------------------------------------------------------------- compound values
def optional(reader: Reader) -> Reader:
    return lambda value, location: None if value is None else reader(value, location)


def listed(reader: Reader) -> Reader:
    def read(value: object, location: str) -> list[Any]:
        if type(value) is not list:
            raise refuse(location, "a list", value)
        return [reader(v, f"{location}[{i}]") for i, v in enumerate(value)]

    return read


def row(*readers: Reader) -> Reader:
    """Return a reader of lists with one value per given reader."""

    def read(value: object, location: str) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(readers):
            raise refuse(location, f"a list of {len(readers)} values", value)
        return tuple(reader(v, f"{location}[{i}]") for i, (reader, v) in enumerate(zip(readers, value)))

    return read


def record(optional_keys: dict[str, Reader] | None = None, **required: Reader) -> Reader:
    """Return a reader of objects with the required keys and some of the optional ones. An absent optional key
    gets the value None.
    """
    readers = {**(optional_keys or {}), **required}

    def read(value: object, location: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise refuse(location, "an object", value)
        for key in required:
            if key not in value:
                raise PackageError(
                    f"{location} is damaged: the key {shown(key)} is missing; save the graph again"
                )
        for key in value:
            if key not in readers:
                raise refuse(location, f"no key besides {', '.join(readers)}", key)
        return {
            k: reader(value[k], inside(location, k)) if k in value else None for k, reader in readers.items()
        }

    return read


def mapping(reader: Reader) -> Reader:
    """Return a reader of objects whose keys are names that the file chooses."""

    def read(value: object, location: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise refuse(location, "an object", value)
        return {identifier(k, location): reader(v, inside(location, k)) for k, v in value.items()}

    return read


def read_size(value: object, location: str) -> int | str:
    """Read a dimension: an integer, or the name of a symbol."""
    return label(value, location) if type(value) is str else integer(0)(value, location)
