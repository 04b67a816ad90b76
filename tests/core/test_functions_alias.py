"""Alias rows: each name is the same object as torch's, and no name with our own function has a row."""

import importlib
import inspect

import pytest

from oneflow._bind import function_rows, rename_rows
from oneflow._tables.aliases import ALIASES

ROWS = [(space, name) for space, names in ALIASES.items() for name in names.split()]


def resolve(path):
    first, *parts = path.split(".")
    obj = importlib.import_module(first)
    for part in parts:
        obj = getattr(obj, part)
    return obj


@pytest.mark.parametrize("space, name", ROWS, ids=lambda v: v)
def test_alias_is_the_same_object(space, name):
    ours, theirs = resolve(f"{space}.{name}"), resolve(f"torch{space[len('oneflow') :]}.{name}")
    # torch._dynamo wraps torch.manual_seed when it is imported, before or after the look-up
    if inspect.isfunction(theirs):
        ours, theirs = inspect.unwrap(ours), inspect.unwrap(theirs)
    assert ours is theirs


def test_the_rows_are_many_and_bound_once():
    assert len(ROWS) == len(set(ROWS)) > 400
    for space, name in ROWS:
        assert name not in function_rows(space) and name not in rename_rows(space), (space, name)
