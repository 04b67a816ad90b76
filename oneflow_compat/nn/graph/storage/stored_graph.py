"""class StoredGraph: the methods of Graph that write it to files and state dicts, and read it back."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from . import graph_state, state_loading

if TYPE_CHECKING:
    import os
    import types

    import torch


def _module(name: str) -> types.ModuleType:
    """Return a module of this package. The writers and readers of saved graphs load on demand."""
    return importlib.import_module(f".{name}", __package__)


class StoredGraph:
    """The part of Graph that keeps its state and its programs: `self` is the Graph."""

    def to_html(self: Any, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Write the program last run as an HTML page by module; with the arguments of a call, that call's
        program, each operator timed (no state changes).
        """
        _module("deploy").to_html(self, path, args, kwargs)

    def state_dict(self: Any, destination: OrderedDict[str, Any] | None = None) -> OrderedDict[str, Any]:
        """State of modules, optimizers, schedules and scaler; layout in graph_state.py."""
        return graph_state.state_dict(self, destination)

    def load_state_dict(self: Any, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Load what state_dict() gave, or real OneFlow's; only before the first call.

        Nothing changes when it does not fit. If the graph involves several ranks, nothing changes on any rank
        when it does not fit on one of them, and every rank raises.

        TypeError unless the argument is a dict.
        """
        with state_loading.on_all_ranks(self):
            self._before_first_call("load_state_dict")
            if not isinstance(state_dict, Mapping):
                raise TypeError(
                    f"load_state_dict takes what state_dict() returned, found {type(state_dict).__name__}"
                )
            write = state_loading.checked_state(self, OrderedDict(state_dict), strict)
        with state_loading.on_all_ranks(self):
            write()

    def runtime_state_dict(
        self: Any, destination: OrderedDict[str, Any] | None = None, with_eager: bool = False
    ) -> OrderedDict[str, Any]:
        """The compiled program with its state, to be saved and given to load_runtime_state_dict()."""
        return _module("runtime_state").runtime_state_dict(self, destination, with_eager)

    def load_runtime_state_dict(
        self: Any, state_dict: dict[str, Any], *, warmup_with_run: bool = True
    ) -> None:
        """Run a program of runtime_state_dict() instead of capturing one; only before the first call."""
        _module("runtime_state").load_runtime_state_dict(self, state_dict, warmup_with_run)

    @staticmethod
    def runtime_state_dict_to(state_dict: dict[str, Any], device: torch.device | str) -> dict[str, Any]:
        """A runtime state dict moved to another device."""
        return _module("runtime_state").runtime_state_dict_to(state_dict, device)

    def enable_save_runtime_state_dict(self, mode: bool = True) -> None:
        """Accepted: runtime_state_dict() is always possible."""

    def save(self: Any, path: str | os.PathLike[str], compiled: bool = False) -> None:
        """Write the program last run with its weights and optimizer state into a folder;
        `oneflow.load_graph(path)` runs it without this class. `compiled`: write the machine code as well, for
        `load_graph(path, trust_binaries=True)`.
        """
        _module("deploy").save(self, path, compiled)

    __oneflow_save__ = save  # oneflow.save(graph, path)

    def export(
        self: Any, path: str | os.PathLike[str], format: Literal["pt2", "aoti", "onnx"] = "pt2"
    ) -> None:
        """Write an inference graph for other runtimes: "pt2" (torch.export), "aoti" (AOTInductor), "onnx"."""
        _module("export").export(self, path, format)

    def __reduce_ex__(self: Any, protocol: object) -> NoReturn:
        raise TypeError(
            f"graph {self.name} can be neither copied nor pickled: a graph is tied to its modules and"
            " optimizers. Copy those and make another graph; graph.save(path) or graph.state_dict() keep one"
            " on disk"
        )
