"""The compiled program of a graph inside a state dict: runtime_state_dict and its counterpart."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from .... import _bind
from ...._graph import writer
from .deploy import last_entry, load_graph, save

if TYPE_CHECKING:
    from ..graph_members import GraphMembers


_FILES = {"program": "program.json", "tensors": "tensors.pt"}  # key of a state dict -> file of a saved graph


def runtime_state_dict(
    graph: GraphMembers, destination: OrderedDict[str, Any] | None = None, with_eager: bool = False
) -> OrderedDict[str, Any]:
    """The compiled program and what it reads as an OrderedDict that flow.save can write; see
    load_runtime_state_dict.

    A graph made with_dynamic_input_shape gives {its name: that OrderedDict}. `with_eager`: add the modules'
    state dicts under "eager_state".
    """
    last_entry(graph, "runtime_state_dict")
    state_dict = out = OrderedDict() if destination is None else destination
    if graph._dynamic:
        out = state_dict[graph.name] = OrderedDict(outputs_original=None)  # clients look through this entry
    with tempfile.TemporaryDirectory() as folder:
        save(graph, os.path.join(folder, "graph"))
        for key, name in _FILES.items():
            with open(os.path.join(folder, "graph", name), "rb") as file:
                out[key] = file.read()
    out["oneflow_version"] = str(_bind.ours("oneflow", "__version__"))  # a file holds no TorchVersion
    out["graph_name"] = graph.name
    if with_eager:
        out["eager_state"] = OrderedDict(
            (name, block._origin.state_dict()) for name, block in graph._blocks.items()
        )
    return state_dict


def load_runtime_state_dict(
    graph: GraphMembers, state_dict: dict[str, Any], warmup_with_run: bool = True
) -> None:
    """Take over a program from runtime_state_dict(): the first call captures nothing.

    The graph's modules keep their weights, and get the saved ones from runtime_state_dict(with_eager=True).
    `warmup_with_run`: run the program once on zeros (inference graphs only).
    """
    graph._before_first_call("load_runtime_state_dict")
    if not isinstance(state_dict, dict):
        raise TypeError(
            "load_runtime_state_dict takes what runtime_state_dict() returned, found"
            f" {type(state_dict).__name__}"
        )
    # the state dict of a graph made with_dynamic_input_shape
    if len(state_dict) == 1 and isinstance(only_state := next(iter(state_dict.values())), dict):
        state_dict = only_state
    _check_files("load_runtime_state_dict", state_dict)
    with tempfile.TemporaryDirectory() as folder:
        for key, name in _FILES.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(state_dict[key])
        loaded = load_graph(folder, backend=graph._engine.config.backend)
    live = {}
    for prefix, block in graph._blocks.items():
        for tensors in (block._origin.named_parameters(), block._origin.named_buffers()):
            live.update({f"{prefix}.{n}": t for n, t in tensors})
    read = loaded.take(live)
    if "eager_state" in state_dict:
        with torch.no_grad():
            for name, value in read.items():
                live[name].copy_(value)
    if warmup_with_run and not loaded.training:
        loaded.warm_up()
    object.__setattr__(graph, "_loaded", loaded)


def runtime_state_dict_to(state_dict: dict[str, Any], device: torch.device | str) -> dict[str, Any]:
    """The state dict with its program on another device."""
    if "program" not in state_dict:
        return type(state_dict)(
            (name, runtime_state_dict_to(state, device)) for name, state in state_dict.items()
        )
    _check_files("runtime_state_dict_to", state_dict)
    out = type(state_dict)(state_dict)
    out["program"], out["tensors"] = writer.moved(state_dict["program"], state_dict["tensors"], device)
    return out


def _check_files(what: str, state_dict: dict[str, Any]) -> None:
    """Raise unless the state dict holds the two files of a saved graph."""
    missing = _FILES.keys() - set(state_dict)
    if missing:
        raise RuntimeError(f"{what}: {sorted(missing)} are missing; give what runtime_state_dict() returned")
    for key in _FILES:
        if not isinstance(state_dict[key], bytes):
            raise TypeError(
                f"{what}: {key!r} must be bytes, found {type(state_dict[key]).__name__}; give what"
                " runtime_state_dict() returned"
            )
