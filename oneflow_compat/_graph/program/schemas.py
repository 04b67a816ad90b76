"""What the schema of an ATen operator says about memory: what it writes, and what its results share."""

from __future__ import annotations

import functools
from typing import Any

import torch


def is_written(value: Any) -> bool:
    """Whether an operator writes an argument, or a result is a written argument."""
    return value.alias_info is not None and value.alias_info.is_write


def has_new_results(target: Any) -> bool:
    """Whether no result shares memory with an argument. A target without a schema may do anything: False."""
    schema = getattr(target, "_schema", None)
    return schema is not None and all(r.alias_info is None for r in schema.returns)


@functools.cache
def written_returns(func: torch._ops.OpOverload) -> tuple[tuple[int, str] | None, ...]:
    """Return the (position, name) of the written argument that each result of an operator is.

    The entry is None for a result that is no written argument.
    """
    arguments = [(position, a) for position, a in enumerate(func._schema.arguments) if is_written(a)]
    return tuple(
        next(((i, a.name) for i, a in arguments if is_written(r) and _is_alias(a, r)), None)
        for r in func._schema.returns
    )


def _is_alias(argument: Any, result: Any) -> bool:
    return bool(argument.alias_info.before_set & result.alias_info.before_set)
