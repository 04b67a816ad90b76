"""The import of inductor without what a compilation for the CPU does not use."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock


def import_lowerings() -> None:
    """Import inductor's lowerings without networkx and without the functions of templates.

    This saves 0.4 of 1.2 seconds of CPU time (2.13).
    """
    with _networkx_on_demand():
        from torch._inductor.codegen import common
    if common.jinja2_env() is not None:
        translate = common.KernelTemplate._template_from_string
        later = staticmethod(lambda source: _Template(source, translate))
        with (
            _networkx_on_demand(),
            mock.patch.object(common.KernelTemplate, "_template_from_string", later),
        ):
            from torch._inductor import lowering  # noqa: F401


@dataclass
class _Template:
    """A template of GPU kernels. Its Python function is made when it is rendered, for autotuning only."""

    source: str
    translate: Callable[[str], Any]
    translated: Any = None

    def render(self, *args: Any, **kwargs: Any) -> str:
        if self.translated is None:
            self.translated = self.translate(self.source)
        text: str = self.translated.render(*args, **kwargs)
        return text


class _ModuleOnDemand(ModuleType):
    """Stands for a module that is imported when an attribute is read."""

    def __getattr__(self, name: str) -> Any:
        # Python's inspect asks all modules for their files; another thread may import a submodule
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _networkx_on_demand() -> Iterator[None]:
    """Let torch import networkx when it partitions a graph, which this package does not let it do.

    At the import, torch needs the name of a class for annotations.
    """
    specification = None if "networkx" in sys.modules else importlib.util.find_spec("networkx")
    if specification is None:
        yield
        return
    networkx: Any = _ModuleOnDemand("networkx")
    networkx.__spec__ = specification
    networkx.DiGraph = object
    sys.modules["networkx"] = networkx
    try:
        yield
    finally:
        del networkx.DiGraph
        if sys.modules.get("networkx") is networkx:
            del sys.modules["networkx"]
