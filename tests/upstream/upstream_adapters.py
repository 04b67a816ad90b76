"""Names of torch's test helpers that older test files import, and that later versions moved or removed.

A suite names one of the tables. Both sides get the names, so the files of a suite run unchanged.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F")


def _unchanged(test: _F) -> _F:
    """Replace a decorator for devices other than the CPU."""
    return test


def _moved(path: str) -> Callable[[], Any]:
    """Return a function that reads the object at "module:name"."""
    module, name = path.split(":")
    return lambda: getattr(importlib.import_module(module), name)


def _new_module_tests() -> Any:
    return _moved("torch.testing._internal.common_nn:get_new_module_tests")()()


def _skip_ops_of_named_test(test_case: str, test: str, to_skip: Any) -> Any:
    """Call skipOps(), which once took the names of the test as well."""
    return _moved("torch.testing._internal.common_device_type:skipOps")()(to_skip)


_INTERNAL = "torch.testing._internal."

# module:name -> a function that returns the value
TORCH_2023: dict[str, Callable[[], Any]] = {
    f"{_INTERNAL}common_utils:skipIfMps": lambda: _unchanged,
    f"{_INTERNAL}common_cuda:tf32_is_not_fp32": lambda: bool,  # bool() is False
    f"{_INTERNAL}common_nn:new_module_tests": _new_module_tests,
    f"{_INTERNAL}common_methods_invocations:xfail": _moved(f"{_INTERNAL}common_device_type:xfail"),
    f"{_INTERNAL}common_methods_invocations:skip": _moved(f"{_INTERNAL}common_device_type:skip"),
    f"{_INTERNAL}common_methods_invocations:skipOps": lambda: _skip_ops_of_named_test,
    f"{_INTERNAL}common_methods_invocations:binary_ufuncs_and_refs": _moved(
        f"{_INTERNAL}common_methods_invocations:binary_ufuncs"
    ),
    "torch.fx.experimental.proxy_tensor:ShapeEnv": _moved("torch.fx.experimental.symbolic_shapes:ShapeEnv"),
    "torch.autograd._functions.utils:check_onnx_broadcast": lambda: functools.partial(tuple, ()),
    "torch._C:has_mkldnn": lambda: True,
}

ADAPTERS = {"": {}, "torch-2023": TORCH_2023}


def add_missing_names(adapter: str) -> None:
    """Set the names of an adapter where the installed torch lacks them. A module that is gone stays so."""
    for path, value in ADAPTERS[adapter].items():
        module_name, name = path.split(":")
        module = importlib.import_module(module_name)
        if not hasattr(module, name):
            setattr(module, name, value())
