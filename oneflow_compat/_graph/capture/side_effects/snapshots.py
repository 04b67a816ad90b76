"""Modules and objects as they were before build(): remembered, compared and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from ...errors import CaptureError
from ...program.python_values import MISSING
from ...program.symbolic import SYMBOLIC_NUMBERS
from ..interfaces import RecordedTensor

INTERNAL = frozenset(vars(torch.nn.Module()))  # attributes that every module has
_DEPTH = 4  # levels of lists and dicts that may keep results


@dataclass(frozen=True, eq=False)
class Before:
    """A module, or the object that build() belongs to, as it was before build()."""

    owner: Any
    parameters: dict[Any, Any]
    buffers: dict[Any, Any]
    attributes: dict[str, Any]
    contents: dict[Any, Any]  # attribute -> snapshot of its list or dict

    def assigned_parameter(self) -> Any:
        """Return the name of a parameter that is another tensor now, or is missing, or new; else None."""
        old = self.parameters
        now = dict(self.owner._parameters.items()) if isinstance(self.owner, torch.nn.Module) else {}
        return next((k for k in {**old, **now} if k not in old or k not in now or old[k] is not now[k]), None)


class Snapshot:
    """Modules, and the object that build() belongs to, as they were before build()."""

    def __init__(self) -> None:
        self.before: dict[int, Before] = {}  # id of the owner -> what it held
        self.children: list[Any] = []  # (module, its child modules before build())
        self.late: set[Any] = set()  # (id(container), key) that hold objects build() created
        self.has_restored = False  # whether something had changed

    def add(self, owner: Any) -> None:
        """Remember a module, or the object that build() belongs to, as it is now."""
        if id(owner) in self.before:
            return
        attributes = {
            k: v for k, v in owner.__dict__.items() if k not in INTERNAL or isinstance(v, torch.Tensor)
        }
        contents = {k: snapshot(v) for k, v in attributes.items() if type(v) in (list, dict)}
        is_module = isinstance(owner, torch.nn.Module)
        buffers, parameters = (owner._buffers, owner._parameters) if is_module else ({}, {})
        self.before[id(owner)] = Before(
            owner, dict(parameters.items()), dict(buffers.items()), attributes, contents
        )
        # the children of a ScriptModule cannot be changed
        if isinstance(owner, torch.nn.Module) and isinstance(owner._modules, dict):
            self.children.append((owner, dict(owner._modules)))

    def restore_everything(self) -> bool:
        """Put everything back, after an error. Return whether something had changed."""
        self.has_restored = False
        self.restore(everything=True)
        return self.has_restored

    def restore(self, everything: bool = False) -> None:
        """Take symbolic values out of modules and objects.

        `everything`: put numbers and flags back as well, after an error.
        """
        for before in self.before.values():
            self._restore_entries(before.owner.__dict__, before.attributes, INTERNAL, everything)
            if isinstance(before.owner, torch.nn.Module):
                self._restore_entries(before.owner._buffers, before.buffers, (), everything)
                if everything and before.assigned_parameter() is not None:
                    before.owner._parameters.clear()
                    before.owner._parameters.update(before.parameters)
            for key, contents in before.contents.items():
                self.has_restored |= put_back(before.attributes[key], contents, everything)
        for owner, children in self.children:
            self._restore_children(owner._modules, children, everything)

    def _restore_entries(self, now: Any, before: Any, skipped: Any, everything: Any) -> None:
        if everything and isinstance(now, dict):
            missing = {k: v for k, v in before.items() if k not in now}
            self.has_restored |= bool(missing)
            now.update(missing)
        for key in list(now.keys()):
            if key in skipped:
                continue
            is_symbolic = holds_symbols(now[key]) or (id(now), key) in self.late
            if key not in before:
                if everything or is_symbolic:
                    self.has_restored = True
                    del now[key]
                continue
            old = before[key]
            if is_symbolic or now[key] is not old and (everything or isinstance(old, torch.Tensor)):
                self.has_restored = True
                now[key] = old

    def _restore_children(self, now: Any, before: Any, everything: Any) -> None:
        if everything and now != before:
            self.has_restored = True
            now.clear()
            now.update(before)
        for key in [k for k in now if (id(now), k) in self.late]:
            if key in before:
                now[key] = before[key]
            else:
                del now[key]


def holds_symbols(value: Any) -> bool:
    """Return True if a value contains a symbolic tensor or a scalar computed from sizes."""
    return next(symbols_in(value), None) is not None


def holds_tensors(value: Any) -> bool:
    """Return True if a value contains a tensor, symbolic or not, or a scalar computed from sizes."""
    return next(_values_in(value, torch.Tensor), None) is not None


def symbols_in(value: Any) -> Iterator[Any]:
    """Yield the symbolic tensors and the scalars computed from sizes that a value contains."""
    return _values_in(value, RecordedTensor)


def _values_in(value: Any, tensors: type) -> Iterator[Any]:
    """Yield the tensors of a class and the scalars computed from sizes that a value contains.

    Containers that torch's pytree knows (lists, dicts, TensorDict) are searched once each.
    """
    pending, searched = [value], {}
    while pending:
        value = pending.pop()
        if isinstance(value, tensors) or type(value) in SYMBOLIC_NUMBERS:
            yield value
            continue
        node_definition = pytree.SUPPORTED_NODES.get(type(value))
        if node_definition is not None and id(value) not in searched:
            searched[id(value)] = value  # the value lives, so that no other object gets its identity
            pending += value if type(value) in (list, tuple) else node_definition.flatten_fn(value)[0]


def snapshot(value: Any, seen: dict[Any, Any] | None = None) -> Any:
    """Return the lists and dicts of a value as they are now; one that is met again stands for itself."""
    seen = {} if seen is None else seen
    if type(value) not in (list, dict) or id(value) in seen:
        return value
    seen[id(value)] = value
    if type(value) is list:
        return [(v, snapshot(v, seen)) for v in value]
    return {k: (v, snapshot(v, seen)) for k, v in value.items()}


def _items(value: list[Any] | dict[Any, Any]) -> list[tuple[Any, ...]]:
    return list(value.items()) if type(value) is dict else list(enumerate(value))


def compare(now: Any, copied: Any, differs: Callable[..., Any], depth: int = 0) -> None:
    """Compare a list or dict that was changed in place with its snapshot.

    `differs(container, key, old, new, is_put_back)` is called for each element. `is_put_back`: the container
    gets all of its old elements again (see put_back), not only the old tensors.
    """
    if copied is now:  # met before
        return
    if depth >= _DEPTH and holds_symbols(now):
        raise CaptureError(
            f"build() kept a tensor in lists or dicts more than {_DEPTH} deep in an attribute",
            "Keep it less deep: no later call would notice it there.",
        )
    before = dict(_items(copied))
    is_put_back = holds_symbols(now)
    if type(now) is not type(copied) or type(now) is list and not is_put_back and len(now) != len(copied):
        return
    if is_put_back and [key for key, _ in _items(now) if key in before] != [*before]:
        raise CaptureError(
            f"build() keeps a tensor or a number of one in a {type(now).__name__} in an attribute, from which"
            " it also takes elements",
            "Keep it in another attribute.",
        )
    for key, new in _items(now):
        old, inner = before.get(key, (MISSING, None))
        if new is old and type(new) in (list, dict):
            compare(new, inner, differs, depth + 1)
        else:
            differs(now, key, old, new, is_put_back)


def put_back(now: Any, copied: Any, everything: bool) -> bool:
    """Give lists and dicts that hold symbols, or all of them, their elements of the snapshot.

    Return whether something had changed.
    """
    if type(now) not in (list, dict) or copied is now:
        return False
    old = [(k, v) for k, (v, _) in _items(copied)]
    has_changed = not _are_identical(_items(now), old)
    if has_changed and (everything or holds_symbols(now)):
        if type(now) is dict:
            now.clear()
            now.update(old)
        else:
            now[:] = [v for _, v in old]
    for _, (value, inner) in _items(copied):
        has_changed |= put_back(value, inner, everything)
    return has_changed


def _are_identical(now: list[Any], old: list[Any]) -> bool:
    """Whether two lists of (key, value) hold the same objects. A key is an index, or any object."""
    return len(now) == len(old) and all(
        v is w and (k is l or type(k) is int and k == l) for (k, v), (l, w) in zip(now, old)
    )
