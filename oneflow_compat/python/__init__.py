"""The package in which OneFlow 0.2 to 0.4 kept its code: every module of it hands on to the job functions.

The table PYTHON_HOMES of `_tables/legacy/names.py` says which module has a path's names.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from .._tables.legacy.names import PYTHON_HOMES

if TYPE_CHECKING:
    from collections.abc import Callable


_API = f"{__name__.partition('.')[0]}.compatible.single_client"
_PACKAGES = {
    "eager",
    "experimental",
    "framework",
    "lib",
    "onnx",
    "ops",
    "serving",
    "summary",
    "test_utils",
    "vm",
}


def _lookup(path: str, name: str) -> Any:
    """The object that `oneflow.python.<path>.<name>` means: from the module's home, else from the
    top level.
    """
    if name in PYTHON_HOMES:  # `from oneflow.python.ops import optimizer`
        return importlib.import_module(f"{_API}.{PYTHON_HOMES[name]}")
    api = importlib.import_module(_API)
    homes = [api, sys.modules[_API.partition(".")[0]]]
    if PYTHON_HOMES.get(path):
        homes.insert(0, functools.reduce(getattr, PYTHON_HOMES[path].split("."), api))
    for home in homes:
        if hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(
        f"oneflow.python.{path} has no attribute {name!r}: it is not a name of OneFlow's job-function API"
    )


def oneflow_export(*api_names: str, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of OneFlow's own sources: it published a function under these names; here it returns the
    function.
    """
    return lambda function: function


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules under `oneflow.python`, made at their import."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        # elsewhere a missing name is an error, not a module
        is_package = fullname[len(__name__) + 1 :] in _PACKAGES
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return types.ModuleType(spec.name, "Names of OneFlow's job functions under the path of its sources.")

    def exec_module(self, module: types.ModuleType) -> None:
        path = module.__name__[len(__name__) + 1 :]
        vars(module).update(
            oneflow_export=oneflow_export, __getattr__=functools.partial(_module_attribute, path)
        )


def _module_attribute(path: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'oneflow.python.{path}' has no attribute {name!r}")
    return _lookup(path, name)


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _lookup("", name)
