"""Objects among the results: those that build() made are made anew by each call, the others are returned.

An object that was there before build() is returned itself, as in eager mode. If build() puts tensors into
such an object, that is a side effect, which a call does not repeat (see survivors.py), and returning the
object is an error.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ...errors import CaptureError
from ...program.object_layouts import layout_of
from ...program.object_trees import Flattening, existing, refers_to_arguments
from ...program.pytree import can_be_opened, has_attributes, is_container_or_dataclass, nested_too_deeply
from ...program.shared_containers import containers_in
from ...program.symbolic import SYMBOLIC_NUMBERS
from ..interfaces import RecordedTensor

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec

    from ...program.captured import ObjectChange
    from ...program.shared_containers import Container
    from .argument_objects import ArgumentObjects


_NodeOf = Callable[[Any], "TreeSpec | None"]


@dataclass(frozen=True, eq=False)
class Results:
    """What one run of build() returned, and what it assigned to objects among its arguments."""

    leaves: list[Any]
    spec: TreeSpec
    changes: tuple[ObjectChange, ...] = ()
    changed_leaves: tuple[Any, ...] = ()
    changed_spec: TreeSpec | None = None
    containers: tuple[Container, ...] = ()  # lists, dicts and objects that build() made, in the results

    @property
    def uses_arguments(self) -> bool:
        """Whether objects among the arguments are changed or returned."""
        return bool(self.changes) or refers_to_arguments(self.spec)


def flatten_results(
    result: Any, arguments: ArgumentObjects | None, made_by_build: Callable[[], set[int]]
) -> Results:
    """Return the results as flat leaves. `made_by_build()` returns the ids of the objects that it made."""
    try:
        flat, spec = pytree.tree_flatten(result, has_attributes)
        if (
            arguments is None
            and not any(map(can_be_opened, flat))
            and not _has_container_twice(result, set())
        ):
            return Results(flat, spec, containers=containers_in(result, is_container_or_dataclass))
        return _flattened(result, arguments, made_by_build())
    except RecursionError:
        raise nested_too_deeply() from None


def _has_container_twice(value: Any, seen: set[int]) -> bool:
    """Whether a list or dict occurs twice in a result: each call returns one object for it."""
    if type(value) not in (list, dict, tuple):
        return False
    if type(value) is not tuple:
        if id(value) in seen:
            return True
        seen.add(id(value))
    parts = value.values() if type(value) is dict else value
    return any(_has_container_twice(part, seen) for part in parts)


def _flattened(result: Any, arguments: ArgumentObjects | None, created: set[int]) -> Results:
    older = _OlderObjects(created)
    nodes: list[_NodeOf] = [older.node_of] if arguments is None else [arguments.node_of, older.node_of]
    flattening = Flattening(older.opens, lambda value: _first_node(nodes, value))
    spec = flattening.spec_of(result)
    leaves = list(flattening.leaves)
    parts = containers_in(result, older.is_made_anew)
    if arguments is None:
        return Results(leaves, spec, containers=parts)
    nodes[0] = arguments.node_in_argument
    changes, values = arguments.changes()
    changed_spec = pytree.TreeSpec(tuple, None, [flattening.spec_of(value) for value in values])
    changed_leaves = tuple(flattening.leaves[len(leaves) :])
    return Results(leaves, spec, tuple(changes), changed_leaves, changed_spec, parts)


def _first_node(nodes: list[_NodeOf], value: Any) -> TreeSpec | None:
    return next((node for node_of in nodes if (node := node_of(value)) is not None), None)


class _OlderObjects:
    """Tells which objects were there before build(), and may be returned themselves."""

    def __init__(self, created: set[int]) -> None:
        self.created = created

    def node_of(self, value: Any) -> TreeSpec | None:
        layout = None if isinstance(value, torch.Tensor) else layout_of(type(value))
        if (
            layout is None
            or not layout.is_user_class
            or not self._is_older(value)
            or _object_holds_symbols(value)
        ):
            return None
        return existing(value)

    def opens(self, value: Any) -> bool:
        """Whether an object is made anew by each call."""
        if isinstance(value, types.FunctionType):
            return self._is_older(value) or not (value.__closure__ or value.__defaults__ or vars(value))
        layout = layout_of(type(value))
        if layout is None or not layout.is_user_class or not self._is_older(value):
            return True
        if is_container_or_dataclass(value):
            return True
        raise CaptureError(
            f"build() puts tensors into an object of the class {type(value).__qualname__} that was there"
            " before the call, and returns it",
            "Pass the object as an argument, so that each call changes the object that it gets, or make it in"
            " build().",
        )

    def is_made_anew(self, value: Any) -> bool:
        """Whether an object is a container, or one that build() made."""
        return is_container_or_dataclass(value) or not self._is_older(value)

    def _is_older(self, value: Any) -> bool:
        """The collector lists no objects without references, such as a dict of numbers."""
        return gc.is_tracked(value) and id(value) not in self.created


_DEPTH = 4  # levels of objects that are searched for tensors of build()


def _object_holds_symbols(value: Any, depth: int = 0) -> bool:
    """Whether an object holds tensors that build() computed."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, RecordedTensor)
    layout = layout_of(type(value)) if depth < _DEPTH else None
    if layout is None:
        return type(value) in SYMBOLIC_NUMBERS
    return any(_object_holds_symbols(part, depth + 1) for _, part in layout.parts(value))
