"""Read an fx graph from the records of its nodes in program.json."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from ..._file_safety.shown import shown
from ..program.recurrent_layer import Layer
from ..program.tensor_info import TensorInfo, describe
from .operators import check_call, is_scalar, target_of
from .reader import (
    PackageError,
    anything,
    boolean,
    identifier,
    inside,
    integer,
    label,
    listed,
    mapping,
    optional,
    read_size,
    record,
    refuse,
    row,
)
from .values_json import decode, decode_dtype

_info = row(listed(read_size), anything, anything, optional(listed(read_size)))
_node = {
    "placeholder": record(op=anything, name=identifier),
    "get_attr": record({"tensor": label}, op=anything, name=identifier, target=identifier),
    "output": record(op=anything, args=listed(anything)),
    "call": record(
        {
            "kwargs": mapping(anything),
            "module": label,
            "phase": label,
            "recomputed": boolean,
            "tensor": _info,
            "recurrent": listed(row(integer(0), label, integer(0))),
        },
        op=anything,
        name=identifier,
        target=anything,
        args=listed(anything),
    ),
}


def tensor_of(key: str, tensors: dict[str, torch.Tensor], location: str) -> torch.Tensor:
    """Return the tensor that tensors.pt has for a key."""
    if key not in tensors:
        raise PackageError(
            f"{location} is damaged: tensors.pt has no tensor {shown(key)}; save the graph again"
        )
    return tensors[key]


class GraphReader:
    """A reader for the nodes of one fx graph.

    Constants are added to `constants`; `layers` are the recurrent layers that nodes belong to.
    """

    def __init__(
        self,
        device: torch.device | None,
        tensors: dict[str, torch.Tensor],
        constants: dict[str, torch.Tensor],
        layers: Sequence[Layer],
    ) -> None:
        self.device, self.tensors, self.constants, self.layers = device, tensors, constants, layers
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.infos: list[TensorInfo | None] = []  # infos of the placeholders that are still to come

    def read(self, records: list[dict[str, Any]], infos: list[TensorInfo | None], location: str) -> Graph:
        """Return the fx graph; `infos` describe the placeholders."""
        if not records:
            raise refuse(location, "an output", [])
        self.infos = list(infos)
        readers = {"placeholder": self._placeholder, "get_attr": self._constant, "call": self._call}
        for index, node_record in enumerate(records):
            here = f"{location}[{index}]"
            op = _op_of(node_record, here, is_last=index == len(records) - 1)
            entry = _node[op](node_record, here)
            if op == "output":
                self._output(entry, here)
            elif entry["name"] in self.nodes:
                raise refuse(here, "a name that no other node has", entry["name"])
            else:
                self.nodes[entry["name"]] = readers[op](entry, here)
        if self.infos:
            raise refuse(location, f"{len(infos)} placeholders", len(infos) - len(self.infos))
        return self.graph

    def _output(self, entry: dict[str, Any], location: str) -> None:
        results = self._decoded(entry["args"], inside(location, "args"))
        if not all(map(is_scalar, results)):
            raise refuse(inside(location, "args"), "results of nodes and numbers", entry["args"])
        self.graph.output(tuple(results))

    def _placeholder(self, entry: dict[str, Any], location: str) -> Node:
        if not self.infos:
            raise refuse(location, "as many placeholders as slots", entry["name"])
        node = self.graph.placeholder(entry["name"])
        node.meta["tensor"] = self.infos.pop(0)
        return node

    def _constant(self, entry: dict[str, Any], location: str) -> Node:
        target = entry["target"]
        key = f"constant:{target}" if entry["tensor"] is None else entry["tensor"]
        constant = tensor_of(key, self.tensors, location)
        if hasattr(torch.nn.Module, target) or self.constants.setdefault(target, constant) is not constant:
            raise refuse(inside(location, "target"), "a name of its own for a constant", target)
        node = self.graph.create_node("get_attr", target, name=entry["name"])
        node.meta["tensor"] = describe(constant)
        return node

    def _call(self, entry: dict[str, Any], location: str) -> Node:
        target = target_of(entry["target"], inside(location, "target"))
        args = tuple(self._decoded(entry["args"], inside(location, "args")))
        kwargs = {k: self._decoded(v, f"{location}.kwargs.{k}") for k, v in (entry["kwargs"] or {}).items()}
        check_call(target, args, kwargs, location)
        node = self.graph.create_node("call_function", target, args, kwargs, name=entry["name"])
        node.meta.update(self._meta(entry, location))
        return node

    def _meta(self, entry: dict[str, Any], location: str) -> dict[str, Any]:
        """Return the metadata of a node that the backends read."""
        meta = {k: entry[k] for k in ("module", "phase", "recomputed") if entry[k] is not None}
        meta["tensor"] = entry["tensor"] and self._info(entry["tensor"], inside(location, "tensor"))
        marks = entry["recurrent"]
        if marks is not None:
            if any(index >= len(self.layers) for index, *_ in marks):
                layers = f"one of the {len(self.layers)} recurrent layers"
                raise refuse(inside(location, "recurrent"), layers, marks)
            meta["recurrent"] = tuple((self.layers[index], role, step) for index, role, step in marks)
        return meta

    def _info(self, entry: tuple[Any, ...], location: str) -> TensorInfo:
        shape, dtype_name, device_record, stride = entry
        dtype, device = decode_dtype(dtype_name, location), self._decoded(device_record, location)
        has_all_strides = stride is None or len(stride) == len(shape)
        if dtype is None or not isinstance(device, torch.device) or not has_all_strides:
            raise refuse(location, "a shape, a dtype, a device and strides", entry)
        return TensorInfo(tuple(shape), dtype, device, None if stride is None else tuple(stride))

    def _decoded(self, value: object, location: str) -> Any:
        return decode(value, self.nodes, self.device, location)


def _op_of(node_record: object, location: str, is_last: bool) -> str:
    op = node_record.get("op") if type(node_record) is dict else None
    if type(op) is not str or op not in _node or (op == "output") is not is_last:
        raise refuse(
            location,
            "a placeholder, get_attr or call, and one output at the end",
            op if type(node_record) is dict else node_record,
        )
    return op
