"""Optimizer state and options in lists and dicts: leaves by path."""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from .locations import Keys


def copied(value: object) -> Any:
    """Copy nested lists and dicts; the leaves are not copied."""
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if type(value) is list else value


def restore(value: object, copy: object) -> Any:
    """Give nested lists and dicts the elements of their copy, and return the value.

    If the value is no list or dict, as the copy is, return the copy.
    """
    if isinstance(value, dict) and isinstance(copy, dict):
        entries = {k: restore(value.get(k), v) for k, v in copy.items()}
        value.clear()
        value.update(entries)
        return value
    if type(value) is list and type(copy) is list:
        value[:] = [restore(*pair) for pair in zip([*value, *[None] * len(copy)], copy)]
        return value
    return copy


def leaves(value: object, path: Keys = ()) -> list[tuple[Keys, Any]]:
    """Return (path, leaf) of all leaves in nested lists and dicts."""
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in leaves(v, (*path, k))]
    if type(value) is list and path:
        return [leaf for i, v in enumerate(value) for leaf in leaves(v, (*path, i))]
    return [(path, value)]


def found_at(value: Any, path: Iterable[Hashable]) -> Any:
    """Return the value at the path, or None."""
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return None
    return value


def put_at(value: Any, path: Keys, leaf: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = leaf


def holds_fake_tensors(value: object, depth: int = 0, apart_from: object = None) -> bool:
    """Whether a value is a fake tensor or contains one, a few levels down, outside of `apart_from`."""
    if isinstance(value, FakeTensor) or depth > 3 or value is apart_from:
        return isinstance(value, FakeTensor)
    elements: Iterable[Any]
    if isinstance(value, dict):
        elements = value.values()
    elif isinstance(value, (list, tuple, set, deque)):
        elements = value
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        elements = vars(value).values()
    else:
        return False
    return any(holds_fake_tensors(element, depth + 1, apart_from) for element in elements)
