"""Backends turn a Program into a callable: `compile(program, config[, name])(*slot values) -> tuple of output
tensors`.
"""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Callable
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..._env import get
from ..._errors import OneFlowError
from ..._upstream.missing import error_of
from .memory import keep_freed_memory_for

if TYPE_CHECKING:
    from types import ModuleType

    from ..config import Config
    from ..program.program import CompiledFunction, Program


# The modules that other packages import.
SEAM = (
    "copies",
    "inductor.compiler",
    "inductor.regions",
    "notices",
    "program_cache",
    "program_cache.store",
    "proof.records",
)

# held by captures, which patch torch, and by compilations: inductor compiles one region at a time
compiling = threading.RLock()

# name -> (module, needed package or None)
BACKENDS = {
    "aten": ("aten", None),
    "auto": ("auto", None),
    "inductor": ("inductor.compiler", None),
    "openvino": ("external", "openvino"),
    "tensorrt": ("external", "torch_tensorrt"),
    "xla": ("external", "torch_xla"),
}


def check_name(name: str) -> str:
    """Return the name of a backend, or raise if there is no such backend."""
    if name not in BACKENDS:
        raise ValueError(f"unknown graph backend {name!r}; there are {', '.join(sorted(BACKENDS))}")
    return name


def default_backend() -> str:
    """Return ONEFLOW_GRAPH_BACKEND if it is set. Otherwise return "auto" (aten first, inductor when it pays)
    if a C++ compiler is found, else "aten".
    """
    name = get("ONEFLOW_GRAPH_BACKEND")
    if name:
        return check_name(name)
    return "auto" if has_compiler() else "aten"


_compiler: list[bool] = []


def has_compiler() -> bool:
    """Whether a C++ compiler is found: CXX, g++, clang++ or c++."""
    if not _compiler:
        _compiler.append(any(shutil.which(c) for c in (get("CXX") or "g++", "clang++", "c++")))
    return _compiler[0]


def missing_package(name: str) -> str | None:
    """Return the package that a backend needs and that is not installed, or None."""
    _, package = BACKENDS[name]
    return package if package is not None and util.find_spec(package) is None else None


def last_release(name: str) -> str:
    """Return a note for the package of a backend that has no release for newer versions of torch."""
    return " (whose last release is for torch 2.9)" if name == "xla" else ""


def compiler_for(name: str) -> Callable[[Program, Config], CompiledFunction]:
    """Return the compile function of a backend. Its module is imported by this call, not before."""
    module, _ = BACKENDS[check_name(name)]
    if (package := missing_package(name)) is not None:
        raise OneFlowError(
            f"graph backend {name!r} needs the package {package}{last_release(name)}, which is not installed;"
            " install it or choose the backend 'aten' or 'inductor'"
        )
    try:
        backend = _backend(module)
    except ImportError as error:
        raise error_of(f"the {name} backend", error) from error

    def compile(program: Program, config: Config) -> CompiledFunction:
        keep_freed_memory_for(program)
        obstacle = _obstacle(program, name, config)
        if obstacle and name == "inductor" and not config.cudagraph:
            return _backend("inductor.islands").compile(program, config)
        if obstacle:
            if config.cudagraph or name not in ("aten", "auto"):
                asked = "a CUDA graph" if config.cudagraph else f"the {name} backend"
                warnings.warn(
                    f"graph {program.name} {obstacle}: it runs on the aten backend, not {asked}",
                    stacklevel=6,
                )
            return _backend("aten").compile(program, config)
        if config.cudagraph:
            return _backend("cudagraph").compile(program, config, name)
        return backend.compile(program, config, name)

    return compile


def _obstacle(program: Program, name: str, config: Config) -> str | None:
    """Return why a compiler cannot take forward and backward as a whole, or None."""
    if program.unknown_sizes:
        return "has tensors whose sizes depend on values"
    if name == "aten" and not config.cudagraph:
        return None
    if _module("inductor.regions").takes_numbers(program):
        return "computes with an option of an optimizer in build()"
    return None


class Backend(Protocol):
    """The module of a backend."""

    def compile(self, program: Program, config: Config, *name: str) -> CompiledFunction: ...


def _backend(module: str) -> Backend:
    return cast(Backend, _module(module))


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")
