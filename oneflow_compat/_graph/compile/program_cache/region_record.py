"""A region as JSON. The record is part of the key of the cache, and a child process rebuilds the region from
it.

Nodes have integer ids, so equal programs of differently named modules have the same record.
"""

from __future__ import annotations

import base64
import importlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ...guards.dimensions import Dimension, DimensionGuards, Layout
from ...program.graph_records import GraphWriter, info_record
from ...program.tensor_info import TensorInfo
from ..inductor.regions import Region

if TYPE_CHECKING:
    from torch.fx import Node
    from torch.fx.node import Target

LARGEST_CONSTANTS = 1 << 24  # bytes; a region with larger constants is not cached
_NAMESPACES = ("aten", "prims", "oneflow")  # namespaces of operators that mean the same in every process
_PYTHON_MODULES = ("_operator", "math")


class NotCacheable(Exception):
    """A region cannot be written as a record; the message says why."""


# --------------------------------------------------------------------------- writing
def record_of(
    region: Region, infos: list[TensorInfo], options: dict[str, Any] | tuple[Any, ...]
) -> dict[str, Any]:
    """Return the record of a region. Raise NotCacheable if its key could not tell it from another one."""
    constants = {n.target: getattr(region, n.target) for n in region.graph.nodes if n.op == "get_attr"}
    if sum(t.numel() * t.element_size() for t in constants.values()) > LARGEST_CONSTANTS:
        raise NotCacheable("its constants are large")
    symbols = region.guards is not None
    return {
        "inputs": [encode_info(info, symbols) for info in infos],
        "guards": encode_guards(region.guards),
        "nodes": nodes_record(region.graph, constants, symbols),
        "options": {name: _encode_option(value) for name, value in sorted(dict(options).items())},
    }


def nodes_record(
    graph: torch.fx.Graph, constants: dict[str, torch.Tensor], symbols: bool = True
) -> list[dict[str, Any]]:
    """Return the record of a graph. `symbols`: whether sizes may be symbols."""
    ids = {node: index for index, node in enumerate(graph.nodes)}

    def details(node: Node) -> dict[str, Any]:
        info = node.meta.get("tensor")
        entry = {"tensor": info and encode_info(info, symbols)}
        return entry | ({"recomputed": True} if node.meta.get("recomputed") else {})

    def constant(node: Node) -> dict[str, Any]:
        return {"constant": encode_tensor(constants[str(node.target)])}

    return GraphWriter(ids.__getitem__, target_name, constant, details, _refusal).records(graph)


def encode_guards(guards: DimensionGuards | None) -> dict[str, Any] | None:
    """Return the record of guards on sizes."""
    if guards is None:
        return None
    return {
        "symbols": [[d.symbol, d.argument, d.dim, d.example] for d in guards.dimensions],
        "layouts": [[index, layout.shape, layout.stride] for index, layout in guards.layouts.items()],
        "conditions": list(guards.conditions),
    }


def target_name(target: Target) -> str:
    """Return the name of a function that a region calls."""
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in _NAMESPACES:
            raise NotCacheable(f"it calls {target}, whose meaning another process may define otherwise")
        return f"{target.namespace}::{target._opname}.{target._overloadname}"
    if getattr(target, "__module__", None) in _PYTHON_MODULES:
        return f"{target.__module__}.{target.__name__}"
    raise NotCacheable(f"it calls {target!r}")


def encode_info(info: TensorInfo | tuple[Any, ...], symbols: bool = False) -> list[Any]:
    """Return the record of a tensor's metadata; `symbols`: whether sizes may be symbols."""
    shape, _, _, stride = info
    if stride is None or not symbols and any(type(n) is str for n in (*shape, *stride)):
        raise NotCacheable("it has tensors of unknown sizes or without strides")
    return info_record(info)


def encode_tensor(value: torch.Tensor) -> dict[str, Any]:
    """Return the record of a constant, its values included."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type != "cpu":
        raise NotCacheable(f"it has a constant of {type(value).__name__} on {value.device}")
    if value.layout is not torch.strided or value.is_conj() or value.is_neg() or value.is_quantized:
        raise NotCacheable("it has a constant in a special form")
    data = value.detach().contiguous().view(-1).view(torch.uint8) if value.numel() else value.new_empty(0)
    return {
        "info": encode_info((tuple(value.shape), value.dtype, value.device, value.stride())),
        "data": base64.b64encode(data.numpy().tobytes()).decode(),
    }


def _refusal(value: object) -> NotCacheable:
    return NotCacheable(f"it holds a {type(value).__name__}")


def _encode_option(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [_encode_option(v) for v in value]
    raise NotCacheable(f"a backend option is a {type(value).__name__}")


# --------------------------------------------------------------------------- reading
def module_of(record: dict[str, Any]) -> tuple[Region, list[TensorInfo], dict[str, Any]]:
    """Return (region, infos of the inputs, options) of a record that this user's own process wrote."""
    region = region_of_nodes(record["nodes"])
    region.guards = decode_guards(record["guards"])
    infos = [decode_info(info) for info in record["inputs"]]
    return region, infos, record["options"]


def region_of_nodes(records: list[dict[str, Any]]) -> Region:
    """Return the region of a record of nodes."""
    graph = torch.fx.Graph()
    nodes: list[torch.fx.Node] = []
    region = Region(graph)
    for entry in records:
        node = _read_node(entry, region, nodes)
        node.meta["tensor"] = decode_info(entry["tensor"]) if entry.get("tensor") else None
        if "recomputed" in entry:
            node.meta["recomputed"] = True
        nodes.append(node)
    return region


def _read_node(entry: dict[str, Any], region: Region, nodes: list[torch.fx.Node]) -> torch.fx.Node:
    """Add a node to the graph of a region after `nodes`."""
    op, graph = entry["op"], region.graph
    if op == "get_attr":
        name = f"constant{len(nodes)}"
        region.register_buffer(name, decode_tensor(entry["constant"]))
        return graph.get_attr(name)
    if op == "placeholder":
        return graph.placeholder(f"input{len(nodes)}")
    args = decode(entry["args"], nodes)
    if op == "output":
        output: Node = graph.output(args)
        return output
    kwargs = {k: decode(v, nodes) for k, v in entry.get("kwargs", {}).items()}
    return graph.call_function(target_of(entry["target"]), tuple(args), kwargs)


def target_of(name: str) -> Callable[..., Any]:
    if "::" not in name:
        module, _, attribute = name.partition(".")
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return function
    operator, overload = name.rsplit(".", 1)
    namespace, base = operator.split("::")
    overloaded: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), base), overload)
    return overloaded


def decode_guards(record: dict[str, Any] | None) -> DimensionGuards | None:
    if record is None:
        return None
    return DimensionGuards(
        tuple(Dimension(*row) for row in record["symbols"]),
        {index: Layout(tuple(shape), tuple(stride)) for index, shape, stride in record["layouts"]},
        tuple(record["conditions"]),
    )


def decode_info(info: list[Any]) -> TensorInfo:
    shape, dtype, device, stride = info
    return TensorInfo(tuple(shape), decode(dtype, []), decode(device, []), tuple(stride))


def decode_tensor(record: dict[str, Any]) -> torch.Tensor:
    shape, _, _, stride = record["info"]
    dtype = decode_info(record["info"]).dtype
    data = base64.b64decode(record["data"])
    value = torch.empty_strided(shape, stride, dtype=dtype)
    if math.prod(shape):
        value.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).view(shape))
    return value


def decode(value: Any, nodes: list[torch.fx.Node]) -> Any:
    if isinstance(value, list):
        return [decode(v, nodes) for v in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "node":
        return nodes[content]
    if tag == "tuple":
        return tuple(decode(v, nodes) for v in content)
    if tag == "complex":
        return complex(*content)
    if tag == "float":
        return float(content)
    return torch.device(content) if tag == "device" else getattr(torch, content)
