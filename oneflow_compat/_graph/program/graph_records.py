"""Write fx graphs as JSON: one record for each node, in files of saved graphs and in the program cache.

    {"op": "placeholder", "name": "x"}
    {"op": "get_attr", "name": "scale", "target": "scale", "tensor": "scale"}
    {"op": "call", "name": "add", "target": "aten::add.Tensor", "args": [{"node": "x"}, {"node": "scale"}]}
    {"op": "output", "args": [{"node": "add"}]}

JSON has numbers, texts and lists; any other value is an object with one key, its tag. Each format has a
reader of its own, because a file may come from a stranger, and the cache comes from the user's own process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

if TYPE_CHECKING:
    from torch.fx import Graph
    from torch.fx.node import Target

    from .tensor_info import TensorInfo

TORCH_TYPES = ("dtype", "layout", "memory_format")

# The error of a value that a format cannot hold.
Refusal = Callable[[object], Exception]


@dataclass(frozen=True)
class GraphWriter:
    """A format of records: what it calls a node and a function, and what it tells of them."""

    name_of: Callable[[Node], str | int]  # unique in the graph
    target_of: Callable[[Target], str]
    constant: Callable[[Node], dict[str, Any]]  # fields of a get_attr node: what it gets
    details: Callable[[Node], dict[str, Any]]  # more fields of any node but the output
    refusal: Refusal

    def records(self, graph: Graph) -> list[dict[str, Any]]:
        """Return the records of the nodes, in order."""
        return [self._record(node) for node in graph.nodes]

    def _record(self, node: Node) -> dict[str, Any]:
        if node.op == "output":
            results: Any = node.args[0]
            return {"op": "output", "args": self._value(list(results))}
        entry: dict[str, Any] = {"op": node.op, "name": self.name_of(node)}
        if node.op == "get_attr":
            entry |= self.constant(node)
        elif node.op != "placeholder":
            entry |= {"op": "call", "target": self.target_of(node.target)}
            entry["args"] = self._value(list(node.args))
            if node.kwargs:
                entry["kwargs"] = {k: self._value(v) for k, v in node.kwargs.items()}
        return entry | self.details(node)

    def _value(self, value: object) -> object:
        return value_record(value, self.refusal, self.name_of)


def value_record(
    value: object, refusal: Refusal, name_of: Callable[[Node], str | int] = lambda node: node.name
) -> object:
    """Return the JSON form of a value in a program."""
    if isinstance(value, Node):
        return {"node": name_of(value)}
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        return {"tuple": [value_record(v, refusal, name_of) for v in value]}
    if isinstance(value, list):
        return [value_record(v, refusal, name_of) for v in value]
    for tag in TORCH_TYPES:
        if isinstance(value, getattr(torch, tag)):
            return {tag: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    raise refusal(value)


def info_record(info: TensorInfo | tuple[Any, ...]) -> list[Any]:
    """Return the record of a tensor's metadata: shape, dtype, device, strides or None."""
    shape, dtype, device, stride = info
    dtype_name, stride = str(dtype).removeprefix("torch."), None if stride is None else list(stride)
    return [list(shape), {"dtype": dtype_name}, {"device": str(device)}, stride]
