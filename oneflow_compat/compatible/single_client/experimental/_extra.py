"""Names that flow.experimental defines directly."""

from __future__ import annotations

from ...._errors import unsupported
from .. import _session, math
from .._indexing import slice_update, slice_v2
from .._variables import assign
from .interface_op_read_and_write import FeedValueToInterfaceBlob as set_interface_blob_value
from .interface_op_read_and_write import GetInterfaceBlobValue as get_interface_blob_value
from .namescope import deprecated_name_scope as name_scope
from .typing_check import api_enable_typing_check as enable_typing_check

__all__ = [
    "custom_op_module",
    "eager_assign_121",
    "enable_typing_check",
    "get_interface_blob_value",
    "get_job_set",
    "logical_slice",
    "broadcast_maximum",
    "broadcast_minimum",
    "logical_slice_assign",
    "name_scope",
    "set_interface_blob_value",
]


def broadcast_maximum(a, b, name=None):
    return math.maximum(a, b)


def broadcast_minimum(a, b, name=None):
    return math.minimum(a, b)


def get_job_set() -> dict:
    """{"job": [{"name": ..., "type": ..., "inputs": [...]}, ...]} of the session's jobs."""
    return {
        "job": [
            {"name": j.name, "type": j.job_type, "inputs": [n for n, _ in j.inputs]}
            for j in _session.default().jobs.values()
        ]
    }


def logical_slice(x, slice_tup_list, name=None):
    return slice_v2(x, slice_tup_list)


def logical_slice_assign(x, value, slice_tup_list, name=None):
    """Set a part of the variable x when the call ends."""
    return assign(x, slice_update(x.detach(), value, slice_tup_list))


def eager_assign_121(ref, value):
    """flow.assign."""
    return assign(ref, value)


class custom_op_module:
    """Builder of OneFlow's C++/Python custom operators; custom operators are built with torch here."""

    def __init__(self, op_module_name, module_path=""):
        self.op_module_name, self.module_path = op_module_name, module_path

    def _refuse(self):
        return unsupported(
            f"custom_op_module({self.op_module_name!r})",
            "legacy-custom-ops",
            "Write the operator with torch.library or torch.utils.cpp_extension, and load it with"
            " flow.config.load_library.",
        )

    def py_api(self):
        raise self._refuse()

    def cpp_def(self):
        raise self._refuse()

    def py_kernel(self):
        raise self._refuse()

    def cpp_kernel(self):
        raise self._refuse()

    def gpu_kernel(self):
        raise self._refuse()

    def build_load(self):
        raise self._refuse()
