"""What this test run has: nodes, devices, ranks."""

from __future__ import annotations

from .. import _env
from .._processes import get_world_size


def eager_execution_enabled() -> bool:
    return _env.get("ONEFLOW_TEST_ENABLE_EAGER") == "1"


def typing_check_enabled() -> bool:
    return _env.get("ONEFLOW_TEST_ENABLE_TYPING_CHECK") == "1"


def has_node_list() -> bool:
    return bool(_env.get("ONEFLOW_TEST_NODE_LIST"))


def node_list() -> list[str]:
    if not has_node_list():
        raise AssertionError("ONEFLOW_TEST_NODE_LIST is not set")
    return _env.get("ONEFLOW_TEST_NODE_LIST").split(",")


def node_size() -> int:
    if _env.get("ONEFLOW_TEST_NODE_NUM"):
        return _env.get_int("ONEFLOW_TEST_NODE_NUM")
    return len(node_list()) if has_node_list() else 1


def device_num() -> int:
    return _env.get_int("ONEFLOW_TEST_DEVICE_NUM")


def has_world_size() -> bool:
    return True


def world_size() -> int:
    return get_world_size()
