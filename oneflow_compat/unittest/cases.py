"""TestCase, and the decorators that skip a test on another number of nodes and devices."""

from __future__ import annotations

import os
import sys
import unittest
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _env
from .env import device_num, eager_execution_enabled, node_size

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., Any])


class TestCase(unittest.TestCase):
    """unittest.TestCase; where job functions are in use, each test has a fresh session of them (eager with
    ONEFLOW_TEST_ENABLE_EAGER=1).
    """

    def setUp(self) -> None:
        jobs = sys.modules.get(__package__.split(".")[0] + ".compatible.single_client._jobs.session")
        if jobs is not None:
            jobs.clear_default_session()
            jobs.enable_eager_execution(eager_execution_enabled())

    def tearDown(self) -> None:
        pass


def skip_unless(n: int, d: int) -> Callable[[Function], Function]:
    """Skip unless the run has n nodes with d devices each (ONEFLOW_TEST_NODE_NUM,
    ONEFLOW_TEST_DEVICE_NUM).
    """
    if (node_size(), device_num()) == (n, d):
        return lambda test: test
    return unittest.skip(
        f"needs {n} node(s) with {d} device(s) each, this run has {node_size()} with {device_num()}"
        " (ONEFLOW_TEST_NODE_NUM, ONEFLOW_TEST_DEVICE_NUM)"
    )


def skip_unless_1n1d() -> Callable[[Function], Function]:
    return skip_unless(1, 1)


def skip_unless_1n2d() -> Callable[[Function], Function]:
    return skip_unless(1, 2)


def skip_unless_1n4d() -> Callable[[Function], Function]:
    return skip_unless(1, 4)


def skip_unless_2n1d() -> Callable[[Function], Function]:
    return skip_unless(2, 1)


def skip_unless_2n2d() -> Callable[[Function], Function]:
    return skip_unless(2, 2)


def skip_unless_2n4d() -> Callable[[Function], Function]:
    return skip_unless(2, 4)


def num_nodes_required(num_nodes: int) -> Callable[[Function], Function]:
    """Mark a test function with the number of nodes it needs, for register_test_cases."""

    def mark(f: Function) -> Function:
        f.__oneflow_test_case_num_nodes_required__ = num_nodes  # type: ignore[attr-defined]
        return f

    return mark


def register_test_cases(
    scope: dict[str, Any],
    directory: str | os.PathLike[str],
    filter_by_num_nodes: Callable[[int], bool],
    base_class: type = unittest.TestCase,
) -> None:
    """Put a test class into `scope` for each test*.py of `directory`, of its test functions whose number of
    nodes passes the filter.
    """
    import importlib.util
    from pathlib import Path

    for file in sorted(Path(directory).glob("test*.py")):
        spec: Any = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        tests = {
            name: f
            for name, f in vars(module).items()
            if name.startswith("test")
            and callable(f)
            and filter_by_num_nodes(getattr(f, "__oneflow_test_case_num_nodes_required__", 1))
        }
        scope[file.stem] = type(file.stem, (base_class,), tests)


class MLIRTestCase(TestCase):
    """A TestCase for programs OneFlow compiles through MLIR; nn.Graph compiles every program here, so nothing
    is switched on.
    """

    def setUp(self) -> None:
        pass

    def tearDown(self) -> None:
        pass


def dataset_dir(sub_dir: str | None = None) -> str:
    """The folder of the test data sets (ONEFLOW_TEST_DATASET_DIR), or a sub-folder of it."""
    root = _env.get("ONEFLOW_TEST_DATASET_DIR")
    return root if sub_dir is None else os.path.join(root, sub_dir)
