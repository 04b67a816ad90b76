"""OneFlow's dual-object test harness: `oneflow_autotest` bound to torch and oneflow."""

import os
import sys

import torch as _torch

try:
    from oneflow_autotest.harness import PUBLIC as _PUBLIC
    from oneflow_autotest.harness import bind as _bind
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        f"oneflow.test_utils.automated_test_util needs {e.name!r}: pip install 'oneflow-compat[autotest]'"
    ) from e

_api = _bind(_torch, sys.modules["oneflow"], names=("pytorch", "oneflow"), accepts_more=True, like="oneflow")
globals().update({name: getattr(_api, name) for name in _PUBLIC})

# rows of `_tables/deep_paths.py`, which read this module
from . import generators, global_scope, profiler, torch_flow_dual_object, util

__all__ = [*_PUBLIC, "os", "generators", "global_scope", "profiler", "torch_flow_dual_object", "util"]
