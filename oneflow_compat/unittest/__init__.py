"""oneflow.unittest: test cases and the decorators that say how many devices a test needs.

Everything of the standard library's `unittest` is here too.
"""

from __future__ import annotations

import unittest as _std
from typing import Any, Literal, NoReturn

from . import env
from .cases import (
    MLIRTestCase,
    TestCase,
    dataset_dir,
    num_nodes_required,
    register_test_cases,
    skip_unless,
    skip_unless_1n1d,
    skip_unless_1n2d,
    skip_unless_1n4d,
    skip_unless_2n1d,
    skip_unless_2n2d,
    skip_unless_2n4d,
)

__all__ = [
    "TestCase",
    "MLIRTestCase",
    "dataset_dir",
    "num_nodes_required",
    "register_test_cases",
    "skip_unless_1n1d",
    "skip_unless_1n2d",
    "skip_unless_1n4d",
    "skip_unless_2n1d",
    "skip_unless_2n2d",
    "skip_unless_2n4d",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_std, name)
