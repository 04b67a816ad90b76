"""Optimizer state and options in lists and dicts: leaves by path."""

from __future__ import annotations

from collections import deque

from torch._subclasses.fake_tensor import FakeTensor


def copied(value):
    """Copy nested lists and dicts; the leaves are not copied."""
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if type(value) is list else value


def leaves(value, path=()):
    """[(path, leaf)] of all leaves in nested lists and dicts."""
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in leaves(v, (*path, k))]
    if type(value) is list and path:
        return [leaf for i, v in enumerate(value) for leaf in leaves(v, (*path, i))]
    return [(path, value)]


def found_at(value, path):
    """The value at the path, or None."""
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return None
    return value


def put_at(value, path, leaf):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = leaf


def symbolic(value, depth=0):
    """Whether a value is a fake tensor or contains one, a few levels down."""
    if isinstance(value, FakeTensor) or depth > 3:
        return isinstance(value, FakeTensor)
    if isinstance(value, dict):
        return any(symbolic(v, depth + 1) for v in value.values())
    if isinstance(value, (list, tuple, set, deque)):
        return any(symbolic(v, depth + 1) for v in value)
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, type)
        and any(symbolic(v, depth + 1) for v in vars(value).values())
    )
