"""flow.experimental of 0.5: its own names, and the eager API, which later moved to the top level."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


_OWN = frozenset(
    """enable_typing_check get_job_set logical_slice logical_slice_assign eager_assign_121 name_scope
    broadcast_maximum broadcast_minimum get_interface_blob_value set_interface_blob_value custom_op_module
    indexed_slices_reduce_sum square_sum ssp_variable_proxy unique_with_counts""".split()
)
_MODULES = frozenset(
    """F indexed_slices_ops interface_op_read_and_write namescope optim scope square_sum_op
    ssp_variable_proxy_op typing_check unique_op""".split()
)
_modules_of = (__name__.split(".")[0],)  # import oneflow.experimental.nn.functional


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}._functions" if name in _OWN else __name__.split(".")[0]
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_OWN, *_MODULES})
