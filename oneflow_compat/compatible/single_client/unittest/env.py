"""The environment of tests: today's oneflow.unittest.env."""

import importlib

from .._jobs.session import eager_execution_enabled as enabled

_today = importlib.import_module(__package__.split(".")[0] + ".unittest.env")

device_num, node_size, node_list, world_size = (
    _today.device_num,
    _today.node_size,
    _today.node_list,
    _today.world_size,
)
has_node_list, has_world_size, typing_check_enabled = (
    _today.has_node_list,
    _today.has_world_size,
    _today.typing_check_enabled,
)


def eager_execution_enabled() -> bool:
    """After flow.enable_eager_execution(), or with ONEFLOW_TEST_ENABLE_EAGER=1."""
    return enabled() or _today.eager_execution_enabled()
