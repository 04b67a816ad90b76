"""Graphs on disk: program.json (readable) and tensors.pt (what they read), loaded without running anything
from them.

Operators are stored by name and looked up among torch's; python functions come from a short list. What the
backends go by (shapes,
phases, marks of recurrent layers) is stored as well, so a loaded program is compiled as a captured one
(format 2 had none of it).
A file that is damaged or foreign gives a PackageError: reader.py checks the texts, operators.py the calls,
tensors.py
the tensors. folder.py writes and opens the files.
"""

from __future__ import annotations

import io
import json
import math
import os
import zlib

import torch
import torch.fx

from ..compile import BACKENDS, check_name, default_backend
from .loaded import LoadedGraph, LoadedProgram
from .folder import PROGRAM, TENSORS, TENSORS_NAME, opened, write_folder
from .operators import target_name
from .program_json import PROGRAM_KEYS, read_program
from .reader import (
    PackageError,
    anything,
    choice,
    label,
    listed,
    optional,
    parse,
    record,
    refuse,
    shown,
    text,
)
from .schedules import SavedSchedule
from .structures import spec_text
from .tensors import read_tensors, write_tensors
from ..program.pytree import plain_spec

FORMAT, READ = 3, (2, 3)


# --------------------------------------------------------------------------- writing
def save(programs, folder: str, backend=None, schedules=()) -> None:
    """Write programs of one graph, pairs of a Program and the values of its slots (in order; ignored for
    arguments). The folder holds the old graph or the new one.

    `backend`: the one that a loaded graph takes if load() is given none. `schedules`: records of
    schedules.py.
    """
    tensors: dict = {}
    first, *others = [_document(program, values, tensors) for program, values in programs]
    document = {
        "format": FORMAT,
        "name": programs[0][0].name,
        "backend": backend,
        "schedules": list(schedules),
        **first,
        "others": others,
    }
    write_folder(
        folder,
        lambda file: write_tensors(tensors, file),
        lambda name: _text(_sealed(document if name == TENSORS else {**document, "tensors": name})),
    )


def _sealed(document):
    """The document with the checksum of its values; spaces and line ends are not part of it."""
    return {**document, "crc32": _checksum(document)}


def _checksum(document):
    values = {k: v for k, v in document.items() if k != "crc32"}
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def moved(program: bytes, tensors: bytes, device):
    """(program.json, tensors.pt) as bytes, for another device."""

    def move(value):
        if isinstance(value, dict):
            return {k: str(device) if k == "device" and v is not None else move(v) for k, v in value.items()}
        return [move(v) for v in value] if isinstance(value, list) else value

    document, out = parse(program, PROGRAM), io.BytesIO()
    if type(document) is not dict:
        raise refuse(PROGRAM, "an object", document)
    write_tensors(read_tensors(io.BytesIO(tensors), TENSORS, device), out)
    return _text(_sealed(move(document))).encode(), out.getvalue()


def _text(document):
    """JSON with a line for each node and slot."""
    lines = []
    for key, value in document.items():
        if key in ("nodes", "slots", "others") and value:
            body = "[\n  " + ",\n  ".join(map(_text if key == "others" else json.dumps, value)) + "\n ]"
        else:
            body = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _document(program, values, tensors):
    """What program.json holds of a program; what it reads goes into `tensors`."""
    layers: dict = {}
    slots = []
    for slot, value in zip(program.slots, values):
        entry = {
            "role": slot.role,
            "name": slot.name,
            "shape": None if slot.shape is None else list(slot.shape),
            "dtype": slot.dtype and _encode(slot.dtype),
            "device": slot.device and str(slot.device),
            "stride": None if slot.stride is None else list(slot.stride),
            "written": slot.written,
        }
        if slot.role != "arg":
            if isinstance(value, torch.Tensor):
                entry["tensor"] = _keep(tensors, slot.name, value.detach())
            else:
                entry["value"] = _encode(value)
        slots.append(entry)
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
        "slots": slots,
        "nodes": _records(program.graph, program.constants, tensors, layers),
        "recurrent": [[getattr(layer, k) for k in _LAYER] for layer in layers],
        "outputs": [{"name": o.name} for o in program.outputs],
        "in_spec": spec_text(plain_spec(program.in_spec)),
        "out_spec": spec_text(plain_spec(program.out_spec)),
        "out_constants": [[i, _encode(v)] for i, v in program.out_constants],
        "in_constants": program.in_constants,
        "guard": guard,
    }


def _records(graph, constants, tensors, layers):
    """A record for each node."""
    nodes = []
    for node in graph.nodes:
        if node.op == "output":
            nodes.append({"op": "output", "args": _encode(list(node.args[0]))})
        elif node.op == "placeholder":
            nodes.append({"op": "placeholder", "name": node.name})
        elif node.op == "get_attr":
            nodes.append(
                {
                    "op": "get_attr",
                    "name": node.name,
                    "target": node.target,
                    "tensor": _keep(tensors, node.target, constants[node.target].detach()),
                }
            )
        else:
            entry = {
                "op": "call",
                "name": node.name,
                "target": target_name(node.target),
                "args": _encode(list(node.args)),
            }
            if node.kwargs:
                entry["kwargs"] = {k: _encode(v) for k, v in node.kwargs.items()}
            nodes.append(entry | _meta_record(node.meta, layers))
    return nodes


def _keep(tensors, name, value):
    """Add a tensor under a key of its own, once for all that read the same memory; the key."""

    def same(other):
        strided = other.layout is value.layout is torch.strided
        return strided and (other.data_ptr(), other.shape, other.stride(), other.dtype) == (
            value.data_ptr(),
            value.shape,
            value.stride(),
            value.dtype,
        )

    key = name
    while key in tensors and not same(tensors[key]):
        key += "'"
    tensors[key] = value
    return key


def _with_named_constants(graph):
    """(a copy of a graph in which tensors among the arguments are constants with names, those constants)"""
    copy, constants = torch.fx.Graph(), {}
    copy.output(copy.graph_copy(graph, {}))
    for node in list(copy.nodes):

        def named(value):
            if not isinstance(value, torch.Tensor):
                return value
            constants[f"guard{len(constants)}"] = value
            with copy.inserting_before(node):
                return copy.create_node("get_attr", f"guard{len(constants) - 1}")

        if node.op == "call_function":
            node.args = tuple(map(named, node.args))
    return copy, constants


_LAYER = "kind", "reverse", "steps", "at", "marks", "differentiated"


def _meta_record(meta, layers):
    """What the backends read of a node, as far as it has it; `layers` numbers the recurrent layers met."""
    entry = {k: meta[k] for k in ("module", "phase", "recomputed") if meta.get(k)}
    if meta.get("tensor") is not None:
        shape, dtype, device, stride = meta["tensor"]
        entry["tensor"] = [
            list(shape),
            _encode(dtype),
            _encode(device),
            None if stride is None else list(stride),
        ]
    if meta.get("recurrent"):
        entry["recurrent"] = [
            [layers.setdefault(layer, len(layers)), role, step] for layer, role, step in meta["recurrent"]
        ]
    return entry


def _encode(value):
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        return {"tuple": [_encode(v) for v in value]}
    if isinstance(value, list):
        return [_encode(v) for v in value]
    for kind in ("dtype", "layout", "memory_format"):
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    raise PackageError(f"a {type(value).__name__} in the program cannot be stored: {value!r}")


# --------------------------------------------------------------------------- reading
_head = record(
    {
        "backend": optional(choice(*BACKENDS)),
        "schedules": listed(anything),
        "others": listed(anything),
        "tensors": text,
        "crc32": text,
        **dict.fromkeys(PROGRAM_KEYS, anything),
    },
    format=anything,
    name=label,
)


def load(folder: str, map_location=None, backend=None) -> LoadedGraph:
    """The graph in `folder`, ready to call. `backend`: as of graph.config.set_backend()."""
    if backend is not None:
        check_name(backend)
    map_location, folder = _there(map_location), os.fspath(folder)
    path = os.path.join(folder, PROGRAM)
    document, checksum, tensors = _read_files(folder, path, map_location)
    device = torch.device(map_location) if isinstance(map_location, (str, torch.device)) else None
    backend = _backend(document, backend, path)
    try:
        graph = _graph(document, path, tensors, device, backend)
    except PackageError:
        raise
    except Exception as error:
        raise PackageError(
            f"{path} is damaged: {type(error).__name__}:"
            f" {str(error).splitlines()[0][:300] if str(error) else ''}; save the graph again"
        ) from None
    if document["format"] == FORMAT and document["crc32"] not in (None, checksum):
        raise PackageError(
            f"{path} is damaged: its values have the CRC-32 {checksum}, it says {shown(document['crc32'])}. "
            "Save the graph again; if you changed the file on purpose, remove its key 'crc32'"
        )
    return graph


def _read_files(folder, path, map_location):
    """(checked document, its checksum, tensors).

    A save may replace both files in between: then they are read once more.
    """
    document, checksum = _read_document(folder, path)
    for _ in range(3):
        name = document["tensors"] or TENSORS
        if not TENSORS_NAME.match(name):
            raise refuse(f"{path}: tensors", f"the name of a file beside it, such as {TENSORS}", name)
        try:
            with opened(folder, name) as file:
                return document, checksum, read_tensors(file, os.path.join(folder, name), map_location)
        except PackageError:
            before, (document, checksum) = document, _read_document(folder, path)
            if document["tensors"] == before["tensors"]:
                raise
    raise PackageError(
        f"{path} was replaced again and again while it was read; load the graph when nobody saves it"
    )


def _read_document(folder, path):
    with opened(folder, PROGRAM) as file:
        document = parse(file.read(), path)
    version = document.get("format") if type(document) is dict else type(document).__name__
    if type(version) is not int or version not in READ:
        raise PackageError(
            f"{path} is not a graph of the formats {' and '.join(map(str, READ))}: found format"
            f" {shown(version)}"
        )
    head = _head(document, f"{path}:")
    return head, _checksum(document)


def _backend(document, backend, path):
    """The backend asked for, or that of the file, or the default."""
    if document["format"] < FORMAT and backend not in (None, "aten"):
        raise PackageError(
            f"{path} is of format {document['format']}, which holds no shapes for the backend {backend!r};"
            " save the graph again, or load it with 'aten'"
        )
    return backend or ("aten" if document["format"] < FORMAT else document["backend"]) or default_backend()


def _graph(document, path, tensors, device, backend):
    state: dict = {}
    first = {k: document[k] for k in PROGRAM_KEYS if document[k] is not None}
    others = [(other, f"{path}: others[{i}]") for i, other in enumerate(document["others"] or ())]
    programs = [
        read_program(document["name"], found, location, tensors, device, state)
        for found, location in ((first, f"{path}:"), *others)
    ]
    rates = {s.name for s in programs[0][0].slots if s.role == "lr"}
    schedules = [
        SavedSchedule(found, rates, f"{path}: schedules[{i}]")
        for i, found in enumerate(document["schedules"] or ())
    ]
    if device is not None and device.type != "meta":
        for program, _ in programs:
            _check_kernels(program, device, path)
    return LoadedGraph(
        [LoadedProgram(program, keys, backend, path) for program, keys in programs], state, backend, schedules
    )


def _there(map_location):
    if (
        isinstance(map_location, (str, torch.device))
        and torch.device(map_location).type == "cuda"
        and not torch.cuda.is_available()
    ):
        raise PackageError(f"map_location={str(map_location)!r}: there is no CUDA device")
    return map_location


_FOR_EVERY_DEVICE = (
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)


def _check_kernels(program, device, path):
    """A program holds operators of the device it was captured on: cuDNN's batch norm, oneDNN's LSTM, fused
    attention.
    """
    keys = torch._C._dispatch_key_for_device(device.type), *_FOR_EVERY_DEVICE
    for target in {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}:
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), k) for k in keys):
            raise PackageError(
                f"{path}: the operator {target.name()} has no kernel for the device {device.type!r}; save the"
                " graph of a model on that device"
            )
