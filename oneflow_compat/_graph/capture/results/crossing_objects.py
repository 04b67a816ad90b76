"""Objects that cross the cut of a step: from its head, which is a program, to its tail, which is not.

Each run makes the lists, dicts and objects anew that the head returns. So one that others can see, too, would
be another object in the tail:

    history = self.history            # the caller's list
    ...
    history.append(loss.item())       # in the tail
"""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...errors import CaptureError
from ...observe import sources

if TYPE_CHECKING:
    from ...observe.hooks.reads import Reads

_CONTAINERS = (list, dict, deque, set)
_SINGLE = (
    torch.Tensor,
    torch.nn.Module,
    type,
    types.FunctionType,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
)


def refuse_shared_objects(
    variables: dict[str, Any], made: set[int], arguments: Iterable[Any], reads: Reads
) -> None:
    """Raise if a variable that crosses the cut holds a container that lies elsewhere, too.

    `made` are the ids of what build() made, or what stands for the containers among the `arguments`.
    """
    arguments = {id(value) for value in _objects(list(arguments), made)}
    crossing = {id(value): value for value in _objects(list(variables.values()), made)}
    outside = [
        value
        for key, value in crossing.items()
        if isinstance(value, _CONTAINERS) and (key in arguments or _was_there(value, made, reads))
    ]
    inside = {*crossing, *(id(vars(v)) for v in crossing.values() if hasattr(v, "__dict__"))}
    for write in reads.writes:
        if id(write.owner) not in made | inside:
            values = sources.contents(write.owner) if write.key is None else (write.current(),)
            outside += [value for value in _objects(list(values), made) if id(value) in crossing]
    if outside:
        raise CaptureError(
            f"a {type(outside[0]).__name__} that lies in an object outside crosses the cut of the step",
            "Read it behind the first line that needs a value.",
        )


def _was_there(container: Any, made: set[int], reads: Reads) -> bool:
    """Whether a container was there before build(). The collector, and so `made`, has no dict of numbers."""
    return id(container) not in made if gc.is_tracked(container) else id(container) in reads.values_outside


def _objects(pending: list[Any], made: set[int]) -> Iterator[Any]:
    """Yield the containers in these values, and the objects that build() made."""
    seen = set()
    while pending:
        value = pending.pop()
        if id(value) in seen or isinstance(value, _SINGLE):
            continue
        seen.add(id(value))
        if isinstance(value, tuple):
            pending += value
        elif isinstance(value, _CONTAINERS) or id(value) in made and hasattr(value, "__dict__"):
            yield value
            pending += [*value.keys(), *value.values()] if isinstance(value, dict) else []
            pending += value if isinstance(value, (list, deque, set)) else []
            pending += vars(value).values() if hasattr(value, "__dict__") else []
