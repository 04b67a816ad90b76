"""Deep path of the profiler."""

from oneflow_autotest.profiler import (
    ProfResult,
    compose,
    profile_dual_object,
    profiled_framework,
    set_hardware_info_list,
    set_profiler_hook,
)

from . import _api

profile = _api.profile

__all__ = [
    "profile",
    "set_profiler_hook",
    "profile_dual_object",
    "profiled_framework",
    "set_hardware_info_list",
    "ProfResult",
    "compose",
]
