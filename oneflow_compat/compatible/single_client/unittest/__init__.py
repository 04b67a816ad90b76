"""flow.unittest: today's oneflow.unittest, for job functions (one process; device counts from the
session).
"""

from __future__ import annotations

import importlib
import unittest as _std
from typing import TYPE_CHECKING

from .._jobs.session import clear_default_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_today = importlib.import_module(__package__.split(".")[0] + ".unittest")

from . import env

TestCase = _today.TestCase
num_nodes_required = _today.num_nodes_required
skip_unless_1n1d = _today.skip_unless_1n1d
skip_unless_1n2d = _today.skip_unless_1n2d
skip_unless_1n4d = _today.skip_unless_1n4d
skip_unless_2n1d = _today.skip_unless_2n1d
skip_unless_2n2d = _today.skip_unless_2n2d
skip_unless_2n4d = _today.skip_unless_2n4d


class _ClearDefaultSession:
    def setUp(self) -> None:
        clear_default_session()


def register_test_cases(
    scope: dict[str, Any],
    directory: str,
    filter_by_num_nodes: Callable[..., Any],
    base_class: type = _std.TestCase,
    test_case_mixin: Any = _ClearDefaultSession,
) -> None:
    """Put the test classes of the test_*.py files of `directory` into `scope`, each with the mixin in front.

    Classes whose required number of nodes `filter_by_num_nodes` refuses are left out.
    """
    import os
    import sys

    sys.path.insert(0, directory)
    for name in sorted(os.listdir(directory)):
        if not (name.startswith("test_") and name.endswith(".py")):
            continue
        module = importlib.import_module(name[:-3])
        for attribute, cls in vars(module).items():
            if (
                isinstance(cls, type)
                and issubclass(cls, base_class)
                and cls is not base_class
                and cls.__module__ == module.__name__
            ):
                if filter_by_num_nodes(getattr(cls, "__oneflow_test_case_num_nodes_required__", 1)):
                    scope[attribute] = type(attribute, (test_case_mixin, cls), {})
