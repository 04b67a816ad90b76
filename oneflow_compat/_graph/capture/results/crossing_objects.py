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
from ...guards.guard import Guard
from ...observe.hooks.writes import Write

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
    in_arguments = {id(value) for value in _objects(list(arguments), made)}
    crossing = {id(value): value for value in _objects(list(variables.values()), made)}
    inside = {id(variables), id(crossing), *crossing, *made, *reads.ids_of_own_containers()}
    inside |= {id(vars(value)) for value in crossing.values() if hasattr(value, "__dict__")}
    for key in crossing:
        value = crossing[key]  # items() would hold it in a tuple
        was_there = key in in_arguments or gc.is_tracked(value) and key not in made
        if was_there or any(_is_outside(holder, inside) for holder in gc.get_referrers(value)):
            raise CaptureError(
                f"a {type(value).__name__} that lies in an object outside crosses the cut of the step",
                "Read it behind the first line that needs a value.",
            )


def _is_outside(holder: Any, inside: set[int]) -> bool:
    """Whether a holder of an object is no variable, no object that build() made, and no note of a capture."""
    return id(holder) not in inside and not isinstance(holder, (types.FrameType, Guard, Write))


def _objects(pending: list[Any], made: set[int]) -> Iterator[Any]:
    """Yield the containers in these values, and the objects that build() made."""
    seen = set()
    while pending:
        value = pending.pop()
        if id(value) in seen or isinstance(value, _SINGLE):
            continue
        seen.add(id(value))
        if isinstance(value, tuple):
            if any(isinstance(element, _CONTAINERS) for element in value):
                yield value
            pending += value
        elif isinstance(value, _CONTAINERS) or id(value) in made:
            yield value
            pending += [*value.keys(), *value.values()] if isinstance(value, dict) else []
            pending += value if isinstance(value, (list, deque, set)) else []
            pending += vars(value).values() if hasattr(value, "__dict__") else []
