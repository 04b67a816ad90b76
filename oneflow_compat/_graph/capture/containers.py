"""Lists and dicts in attributes: what they held before build(), compared and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import CaptureError
from ..program.symbolic import SYMBOLIC_NUMBERS

_DEPTH = 4  # of lists and dicts in each other in which results may be kept


def holds_symbols(value: Any, seen: dict[Any, Any] | None = None) -> bool:
    """Return True if a value contains a symbolic tensor or a scalar computed from sizes.

    Containers that torch's pytree knows (lists, dicts, TensorDict) are searched, too.
    """
    if isinstance(value, FakeTensor) or type(value) in SYMBOLIC_NUMBERS:
        return True
    node_definition, seen = pytree.SUPPORTED_NODES.get(type(value)), {} if seen is None else seen
    if node_definition is None or id(value) in seen:
        return False
    seen[id(value)] = value
    return any(
        holds_symbols(v, seen)
        for v in (value if type(value) in (list, tuple) else node_definition.flatten_fn(value)[0])
    )


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

    `differs(container, key, old, new)` is called for each element that differs.
    """
    if copied is now:  # met before
        return
    if depth >= _DEPTH and holds_symbols(now):
        raise CaptureError(
            f"build() kept a tensor in lists or dicts more than {_DEPTH} deep in an attribute",
            "Keep it less deep: no later call would notice it there.",
        )
    before = dict(_items(copied))
    if (
        type(now) is not type(copied)
        or type(now) is list
        and not holds_symbols(now)
        and len(now) != len(copied)
    ):
        return
    for key, new in _items(now):
        old, inner = before.get(key, (None, None))
        if new is old and type(new) in (list, dict):
            compare(new, inner, differs, depth + 1)
        else:
            differs(now, key, old, new)


def put_back(now: Any, copied: Any, everything: bool) -> None:
    """Give lists and dicts that hold symbols, or all of them, their elements of the snapshot."""
    if type(now) not in (list, dict) or copied is now:
        return
    if everything or holds_symbols(now):
        old = [(k, v) for k, (v, _) in _items(copied)]
        if type(now) is dict:
            now.clear()
            now.update(old)
        else:
            now[:] = [v for _, v in old]
    for _, (value, inner) in _items(copied):
        put_back(value, inner, everything)
