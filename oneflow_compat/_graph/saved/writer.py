"""Write a graph's programs to a folder: program.json (readable) and tensors.pt (what they read)."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..program.graph_records import GraphWriter, info_record
from ..program.memory import view_of
from ..program.pytree import plain_spec
from .binaries import binary_plans, remove_binaries, save_binaries
from .dimensions import has_symbols, record_of
from .folder import PROGRAM, TENSORS, write_folder
from .operators import target_name
from .reader import parse, refuse
from .structures import spec_text
from .tensors import read_tensors, write_tensors
from .values_json import encode, refusal

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ..program.program import Program, Slot
    from ..program.recurrent_layer import Layer


FORMAT = 3  # version of program.json
_LAYER = "name", "reverse", "steps", "index", "marks", "differentiated"


def save(
    programs: Sequence[tuple[Program, Sequence[Any]]],
    folder: str,
    backend: str | None = None,
    schedules: Sequence[dict[str, Any]] = (),
    compiled: bool = False,
) -> None:
    """Write programs of one graph. The folder holds the old graph or the new one at any moment.

    `programs`: pairs of a Program and the values of its slots in order (ignored for arguments). `backend`:
    the backend of a loaded graph if load() gets none. `schedules`: records of schedules.py.
    `compiled`: write the machine code of the programs as well.
    """
    plans = binary_plans([program for program, _ in programs]) if compiled else []
    tensors: dict[str, torch.Tensor] = {}
    primary, *others = [_document(program, values, tensors) for program, values in programs]
    document = {
        "format": FORMAT,
        "name": programs[0][0].name,
        "backend": backend,
        "schedules": list(schedules),
        **primary,
        "others": others,
    }
    write_folder(
        folder,
        lambda file: write_tensors(tensors, file),
        lambda name: _text(sealed(document if name == TENSORS else {**document, "tensors": name})),
    )
    if compiled:
        save_binaries(plans, folder)
    else:
        remove_binaries(folder)


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the checksum of its values. Spaces and line ends do not count."""
    return {**document, "crc32": checksum(document)}


def checksum(document: dict[str, Any]) -> str:
    values = {k: v for k, v in document.items() if k != "crc32"}
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def moved(program: bytes, tensors: bytes, device: str | torch.device) -> tuple[bytes, bytes]:
    """Return (program.json, tensors.pt) as bytes, for another device."""

    def move(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: str(device) if k == "device" and v is not None else move(v) for k, v in value.items()}
        return [move(v) for v in value] if isinstance(value, list) else value

    document, out = parse(program, PROGRAM), io.BytesIO()
    if type(document) is not dict:
        raise refuse(PROGRAM, "an object", document)
    write_tensors(read_tensors(io.BytesIO(tensors), TENSORS, device), out)
    return _text(sealed(move(document))).encode(), out.getvalue()


def _text(document: dict[str, Any]) -> str:
    """Return JSON with one line per node and slot."""
    lines = []
    for key, value in document.items():
        if key in ("nodes", "slots", "others") and value:
            body = "[\n  " + ",\n  ".join(map(_text if key == "others" else json.dumps, value)) + "\n ]"
        else:
            body = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _document(program: Program, values: Sequence[Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the program.json record of a program; values that the program reads go into `tensors`."""
    layers: dict[Layer, int] = {}
    guard = None
    if program.guard is not None:
        graph, constants = _with_named_constants(program.guard[0])
        guard = {
            "inputs": list(program.guard[1]),
            "nodes": _records(graph, {**program.constants, **constants}, tensors, {}),
        }
    return {
        "training": program.training,
        "unknown_sizes": program.unknown_sizes,
        "dimensions": record_of(program.dimensions),
        "slots": [_slot_record(slot, value, tensors) for slot, value in zip(program.slots, values)],
        "nodes": _records(program.graph, program.constants, tensors, layers),
        "recurrent": [[getattr(layer, k) for k in _LAYER] for layer in layers],
        "outputs": [{"name": o.name} for o in program.outputs],
        "in_spec": spec_text(plain_spec(program.in_spec)),
        "out_spec": spec_text(plain_spec(program.out_spec)),
        "out_constants": [[i, encode(v)] for i, v in program.out_constants],
        "in_constants": program.in_constants,
        "guard": guard,
    }


def _slot_record(slot: Slot, value: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    entry = {
        "role": slot.role,
        "name": slot.name,
        "shape": None if slot.shape is None else list(slot.shape),
        "dtype": slot.dtype and encode(slot.dtype),
        "device": slot.device and str(slot.device),
        "stride": None if slot.stride is None or has_symbols(slot) else list(slot.stride),
        "written": slot.written,
    }
    if isinstance(value, torch.Tensor) and slot.role != "arg":
        entry["tensor"] = _keep(tensors, slot.name, value.detach())
    elif slot.role != "arg":
        entry["value"] = encode(value)
    return entry


def _records(
    graph: Graph,
    constants: dict[str, torch.Tensor],
    tensors: dict[str, torch.Tensor],
    layers: dict[Layer, int],
) -> list[dict[str, Any]]:
    """Return a record for each node. Constants go into `tensors`."""

    def constant(node: Node) -> dict[str, Any]:
        name = str(node.target)
        return {"target": name, "tensor": _keep(tensors, name, constants[name].detach())}

    def details(node: Node) -> dict[str, Any]:
        return _meta_record(node.meta, layers) if node.op == "call_function" else {}

    return GraphWriter(lambda node: node.name, target_name, constant, details, refusal).records(graph)


def _keep(tensors: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> str:
    """Add a tensor under a unique key, once for all tensors that read the same memory, and return the key."""
    key = name
    while key in tensors and view_of(tensors[key]) != view_of(value):
        key += "'"
    tensors[key] = value
    return key


def _with_named_constants(graph: Graph) -> tuple[Graph, dict[str, torch.Tensor]]:
    """Return (copy of a graph in which tensor arguments are named constants, those constants)."""
    copy = torch.fx.Graph()
    constants: dict[str, torch.Tensor] = {}
    copy.output(copy.graph_copy(graph, {}))
    for node in list(copy.nodes):

        def named(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            constants[f"guard{len(constants)}"] = value
            with copy.inserting_before(node):
                return copy.create_node("get_attr", f"guard{len(constants) - 1}")

        if node.op == "call_function":
            node.args = tuple(map(named, node.args))
    return copy, constants


def _meta_record(meta: dict[str, Any], layers: dict[Layer, int]) -> dict[str, Any]:
    """Return the metadata of a node that the backends read, if present. `layers` numbers the recurrent
    layers.
    """
    entry = {k: meta[k] for k in ("module", "phase", "recomputed") if meta.get(k)}
    if meta.get("tensor") is not None:
        entry["tensor"] = info_record(meta["tensor"])
    if meta.get("recurrent"):
        entry["recurrent"] = [
            [layers.setdefault(layer, len(layers)), role, step] for layer, role, step in meta["recurrent"]
        ]
    return entry
