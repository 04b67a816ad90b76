"""Functions made from the rows of `_tables/legacy/config.py`: each records its value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...._tables.legacy.config import REQUIRED


def setter(
    name: str,
    row: Sequence[Any],
    argument: str,
    record: Callable[..., Any],
    qualname: str,
    method: bool = False,
) -> Callable[..., Any]:
    """Return a function `name(argument)` that calls record(name, value).

    Its docstring says what the value does.
    """
    default, state, why = row
    P = inspect.Parameter
    parameters = [P("self", P.POSITIONAL_ONLY)] if method else []
    if default is not None:
        parameters.append(
            P(argument, P.POSITIONAL_OR_KEYWORD, default=P.empty if default is REQUIRED else default)
        )
    signature = inspect.Signature(parameters)

    def function(*args: Any, **kwargs: Any) -> bool | None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = list(bound.arguments.values())
        return record(*values[:1], name, *values[1:]) if method else record(name, *values)

    function.__name__ = name.rpartition(".")[2]
    function.__qualname__ = qualname
    function.__signature__ = signature
    function.__doc__ = f"{state.capitalize()}: {why}."
    return function
