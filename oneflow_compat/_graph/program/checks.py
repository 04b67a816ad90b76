"""Checks of values in build(), which a program makes by assertions with a message."""

from __future__ import annotations

import builtins
import re

import torch

aten = torch.ops.aten
_FAILED = "a check in build() failed"
_RAISES = re.compile(re.escape(_FAILED) + r" \((\w+)\): ")


def check_message(location: str, error_class: type[Exception] | None) -> str:
    """Return the message of the assertion for a check that raises an error of this class in eager mode.

    A message names a built-in class, because a saved program knows no others.
    """
    bases = () if error_class is None else error_class.__mro__
    name = next((cls.__name__ for cls in bases if _is_built_in(cls.__name__, cls)), None)
    return f"{_FAILED} ({name}): {location}" if name is not None else f"{_FAILED}: {location}"


def class_of_message(message: str) -> type[Exception] | None:
    """Return the class of error that a message from `check_message` names, or None."""
    match = _RAISES.search(message)
    error_class = vars(builtins).get(match[1]) if match else None
    return error_class if _is_built_in(match[1] if match else "", error_class) else None


def makes_checks(graph: torch.fx.Graph) -> bool:
    """Whether a program with this graph checks values for which eager mode raises another error."""
    return any(
        n.target is aten._assert_async.msg and class_of_message(n.args[1]) is not None for n in graph.nodes
    )


def _is_built_in(name: str, error_class: object) -> bool:
    """Whether this is a built-in class of errors that are made from one message."""
    return (
        isinstance(error_class, type)
        and issubclass(error_class, Exception)
        and error_class not in (Exception, RuntimeError)
        and not issubclass(error_class, UnicodeError)
        and vars(builtins).get(name) is error_class
    )
