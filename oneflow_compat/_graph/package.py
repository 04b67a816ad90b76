"""Programs of a graph on disk: program.json (readable) and tensors.pt (what they read), loaded without running anything from them.

Operators are stored by name and looked up among torch's; python functions come from a short list. What the backends go by (shapes,
phases, marks of recurrent layers) is stored as well, so a loaded program is compiled as a captured one (format 2 had none of it).
tensors.pt is read by torch's weights-only unpickler. A file that is damaged or foreign gives a PackageError.
"""
from __future__ import annotations

import contextlib
import json
import math
import operator
import os
import shutil
import tempfile
import zipfile

import torch
import torch.fx
import torch.utils._pytree as pytree

from .backends import check_name, default_backend
from .errors import ProgramError
from .loaded import LoadedGraph, LoadedProgram
from .program import Output, Program, Slot
from .random_state import PYTHON_NAMES
from .saved_schedules import SavedSchedule
from .recorder import TensorInfo, describe
from .recurrent_layers import Layer
from .tree import plain_spec

FORMAT, READ = 3, (2, 3)
_PYTHON = {f"operator.{n}": getattr(operator, n) for n in ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "neg", "abs", "getitem", "eq", "ne", "lt", "le", "gt", "ge")}
_PYTHON |= {f"math.{n}": getattr(math, n) for n in ("sqrt", "exp", "log", "log1p", "expm1", "pow", "cos", "sin", "tanh", "floor", "ceil")}
_PYTHON |= {f"torch.{n}": getattr(torch, n) for n in ("sym_min", "sym_max", "sym_float", "sym_int", "sym_not", "sym_ite", "sym_sum")}
_PYTHON |= PYTHON_NAMES | {"torch.equal": torch.equal}
_PYTHON_NAME = {id(f): n for n, f in _PYTHON.items()}
_NAMESPACES = ("aten", "prims", "prim", "oneflow")
_REFUSED_OPS = ("aten::from_file", "aten::save")  # they touch files named in their arguments


class PackageError(ProgramError):
    """A saved program cannot be written or read; the text names the file and what is wrong."""


# --------------------------------------------------------------------------- writing
def save(programs, folder: str, backend=None, schedules=()) -> None:
    """Write programs of one graph, pairs of a Program and the values of its slots (in order; ignored for arguments). The folder appears whole or not at all.

    `backend`: the one that a loaded graph takes if load() is given none. `schedules`: records of saved_schedules.py.
    """
    tensors: dict = {}
    first, *others = [_document(program, values, tensors) for program, values in programs]
    document = {"format": FORMAT, "name": programs[0][0].name, "backend": backend, "schedules": list(schedules), **first, "others": others}
    folder = os.path.abspath(os.fspath(folder))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise PackageError(f"{folder} is a file; a graph is saved into a folder")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".graph-", dir=os.path.dirname(folder))
    try:
        with open(os.path.join(temporary, "program.json"), "w", encoding="utf-8") as file:
            file.write(_text(document))
        with _checksums():
            torch.save(tensors, os.path.join(temporary, "tensors.pt"))
        if os.path.isdir(folder):
            if not os.path.exists(os.path.join(folder, "program.json")) and os.listdir(folder):
                raise PackageError(f"{folder} exists and holds something else than a graph; choose another folder")
            old = tempfile.mkdtemp(prefix=".graph-old-", dir=os.path.dirname(folder))
            os.rename(folder, os.path.join(old, "graph"))
            os.rename(temporary, folder)
            shutil.rmtree(old)
        else:
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _text(document):
    """JSON with a line for each node and slot."""
    lines = []
    for key, value in document.items():
        if key in ("nodes", "slots", "others") and value:
            text = "[\n  " + ",\n  ".join(map(_text if key == "others" else json.dumps, value)) + "\n ]"
        else:
            text = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _document(program, values, tensors):
    """What program.json holds of a program; what it reads goes into `tensors`."""
    layers: dict = {}
    slots = []
    for slot, value in zip(program.slots, values):
        record = {"role": slot.role, "name": slot.name, "shape": None if slot.shape is None else list(slot.shape),
                  "dtype": slot.dtype and _encode(slot.dtype), "device": slot.device and str(slot.device),
                  "stride": None if slot.stride is None else list(slot.stride), "written": slot.written}
        if slot.role != "arg":
            if isinstance(value, torch.Tensor):
                record["tensor"] = _keep(tensors, slot.name, value.detach())
            else:
                record["value"] = _encode(value)
        slots.append(record)
    guard = None
    if program.guard is not None:
        graph, constants = _with_named_constants(program.guard[0])
        guard = {"inputs": list(program.guard[1]), "nodes": _records(graph, {**program.constants, **constants}, tensors, {})}
    return {
        "training": program.training, "unknown_sizes": program.unknown_sizes, "slots": slots,
        "nodes": _records(program.graph, program.constants, tensors, layers), "recurrent": [[getattr(layer, k) for k in _LAYER] for layer in layers],
        "outputs": [{"name": o.name} for o in program.outputs],
        "in_spec": pytree.treespec_dumps(plain_spec(program.in_spec)), "out_spec": pytree.treespec_dumps(plain_spec(program.out_spec)),
        "out_constants": [[i, _encode(v)] for i, v in program.out_constants], "in_constants": program.in_constants, "guard": guard,
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
            nodes.append({"op": "get_attr", "name": node.name, "target": node.target, "tensor": _keep(tensors, node.target, constants[node.target].detach())})
        else:
            record = {"op": "call", "name": node.name, "target": _target_name(node.target), "args": _encode(list(node.args))}
            if node.kwargs:
                record["kwargs"] = {k: _encode(v) for k, v in node.kwargs.items()}
            nodes.append(record | _meta_record(node.meta, layers))
    return nodes


def _keep(tensors, name, value):
    """Add a tensor under a key of its own, once for all that read the same memory; the key."""
    def same(other):
        strided = other.layout is value.layout is torch.strided
        return strided and (other.data_ptr(), other.shape, other.stride(), other.dtype) == (value.data_ptr(), value.shape, value.stride(), value.dtype)

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
    record = {k: meta[k] for k in ("module", "phase", "recomputed") if meta.get(k)}
    if meta.get("tensor") is not None:
        shape, dtype, device, stride = meta["tensor"]
        record["tensor"] = [list(shape), _encode(dtype), _encode(device), None if stride is None else list(stride)]
    if meta.get("recurrent"):
        record["recurrent"] = [[layers.setdefault(layer, len(layers)), role, step] for layer, role, step in meta["recurrent"]]
    return record


def _meta(record, layers, decode):
    """What _meta_record wrote."""
    meta = {k: record[k] for k in ("module", "phase", "recomputed") if k in record} | {"tensor": None}
    if "tensor" in record:
        shape, dtype, device, stride = record["tensor"]
        meta["tensor"] = TensorInfo(tuple(shape), decode(dtype), decode(device), None if stride is None else tuple(stride))
    if "recurrent" in record:
        meta["recurrent"] = tuple((layers[at], role, step) for at, role, step in record["recurrent"])
    return meta


def _layer(kind, reverse, steps, at, marks, differentiated):
    layer = Layer(kind, reverse, steps, at)
    layer.marks, layer.differentiated = marks, differentiated
    return layer


def _target_name(target):
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    name = _PYTHON_NAME.get(id(target))
    if name is None:
        raise PackageError(f"the program calls {target!r}, which cannot be stored")
    return name


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
def load(folder: str, map_location=None, backend=None) -> LoadedGraph:
    """The graph in `folder`, ready to call. `backend`: as of graph.config.set_backend()."""
    if backend is not None:
        check_name(backend)
    path = os.path.join(os.fspath(folder), "program.json")
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise PackageError(f"no graph in {folder}: {path} is missing") from None
    except NotADirectoryError:
        raise PackageError(f"{folder} is no folder of a graph") from None
    except (ValueError, RecursionError) as error:
        raise PackageError(f"{path} is damaged: {error}") from None
    if not isinstance(document, dict) or document.get("format") not in READ:
        raise PackageError(f"{path} is not a graph of the formats {' and '.join(map(str, READ))}: found format {document.get('format') if isinstance(document, dict) else type(document).__name__!r}")
    data = os.path.join(os.fspath(folder), "tensors.pt")
    try:
        changed = _changed(data)
        tensors = torch.load(data, map_location=_there(map_location), weights_only=True)
    except FileNotFoundError:
        raise PackageError(f"no graph in {folder}: {data} is missing") from None
    except Exception as error:
        raise PackageError(f"{data} cannot be read; it is damaged, or of a device that is not here (map_location= names another): {''.join(str(error).splitlines()[:1])}") from None
    if changed:
        raise PackageError(f"{data} is damaged: {changed} in it is not as it was written")
    try:
        state: dict = {}
        programs = [_program(document["name"], one, tensors, map_location, state) for one in (document, *document.get("others", ()))]
        rates = {s.name for s in programs[0][0].slots if s.role == "lr"}
        schedules = [SavedSchedule(found, rates) for found in document.get("schedules", ())]
        for program, _ in programs:
            program.check()
            if isinstance(map_location, (str, torch.device)) and torch.device(map_location).type != "meta":
                _check_kernels(program, torch.device(map_location))
    except PackageError as error:
        raise PackageError(f"{path}: {error}") from None
    except Exception as error:
        raise PackageError(f"{path} is damaged: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from None
    if document["format"] < FORMAT and backend not in (None, "aten"):
        raise PackageError(f"{path} is of format {document['format']}, which holds no shapes for the backend {backend!r}; save the graph again, or load it with 'aten'")
    backend = backend or ("aten" if document["format"] < FORMAT else document["backend"]) or default_backend()
    return LoadedGraph([LoadedProgram(*one, backend) for one in programs], state, backend, schedules)


@contextlib.contextmanager
def _checksums():
    """Does torch.save write the checksums that load() compares? They can be switched off."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(True)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def _changed(path):
    """The name of a part of torch's zip file that differs from its checksum, which torch.load does not compare; None where all are right."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as file:
        return file.testzip()


def _there(map_location):
    if isinstance(map_location, (str, torch.device)) and torch.device(map_location).type == "cuda" and not torch.cuda.is_available():
        raise PackageError(f"map_location={str(map_location)!r}: there is no CUDA device")
    return map_location


_FOR_EVERY_DEVICE = "CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"


def _check_kernels(program, device):
    """A program holds operators of the device it was captured on: cuDNN's batch norm, oneDNN's LSTM, fused attention."""
    keys = torch._C._dispatch_key_for_device(device.type), *_FOR_EVERY_DEVICE
    for target in {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}:
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), k) for k in keys):
            raise PackageError(f"the operator {target.name()} has no kernel for the device {device.type!r}; save the graph of a model on that device")


def _program(name, document, tensors, map_location, state):
    """(Program, {slot index: its key in `state`}); what it reads goes into `state`."""
    device = torch.device(map_location) if isinstance(map_location, (str, torch.device)) else None
    layers = [_layer(*record) for record in document.get("recurrent", ())]

    def decode(value):
        return _decode(value, {}, device)

    slots, keys = [], {}
    for index, record in enumerate(document["slots"]):
        slots.append(_slot(index, record, decode))
        if record["role"] != "arg":
            keys[index], value = _value(slots[-1], record, tensors, decode)
            state[keys[index]] = value
    infos = [None if s.shape is None else TensorInfo(s.shape, s.dtype, s.device, s.stride) for s in slots]
    constants: dict = {}
    graph, guard = _graph(document["nodes"], infos, tensors, constants, layers, device), document.get("guard")
    if guard is not None:
        guard = _graph(guard["nodes"], [infos[i] for i in guard["inputs"]], tensors, constants, (), device), tuple(guard["inputs"])
    program = Program(
        name=name, graph=graph, slots=tuple(slots), outputs=tuple(Output(o["name"]) for o in document["outputs"]),
        in_spec=pytree.treespec_loads(document["in_spec"]), out_spec=pytree.treespec_loads(document["out_spec"]),
        out_constants=tuple((i, decode(v)) for i, v in document["out_constants"]), in_constants=tuple(map(tuple, document.get("in_constants", ()))),
        constants=constants, guard=guard, training=document["training"], unknown_sizes=document.get("unknown_sizes", False),
    )  # fmt: skip
    return program, keys


def _graph(records, infos, tensors, constants, layers, device):
    """What _records wrote; `infos`: of the placeholders. Constants are added to `constants`."""
    graph, nodes, infos = torch.fx.Graph(), {}, iter(infos)

    def decode(value):
        return _decode(value, nodes, device)

    for record in records:
        if record["op"] == "output":
            graph.output(tuple(decode(record["args"])))
            continue
        if record["op"] == "placeholder":
            node = graph.placeholder(record["name"])
            node.meta["tensor"] = next(infos)
        elif record["op"] == "get_attr":
            constant = constants[record["target"]] = tensors[record.get("tensor", f"constant:{record['target']}")]
            node = graph.create_node("get_attr", record["target"], name=record["name"])
            node.meta["tensor"] = describe(constant)
        elif record["op"] == "call":
            kwargs = {k: decode(v) for k, v in record.get("kwargs", {}).items()}
            node = graph.create_node("call_function", _target(record["target"]), tuple(decode(record["args"])), kwargs, name=record["name"])
            node.meta.update(_meta(record, layers, decode))
        else:
            raise PackageError(f"a node of unknown kind {record['op']!r}")
        nodes[record["name"]] = node
    return graph


def _slot(index, record, decode):
    shape, stride = (None if record.get(k) is None else tuple(record[k]) for k in ("shape", "stride"))
    device = record["device"] and decode({"device": record["device"]})
    return Slot(record["role"], record["name"], ("loaded", index), shape, record["dtype"] and decode(record["dtype"]), device, stride, record["written"])


def _value(slot, record, tensors, decode):
    """(its key, the value)"""
    if slot.shape is None:
        return slot.name, decode(record["value"])
    key = record.get("tensor", slot.name)
    value = tensors[key]
    if tuple(value.shape) != slot.shape or value.dtype != slot.dtype:
        raise PackageError(f"tensor {slot.name!r} is {value.dtype}{list(value.shape)}, the program needs {slot.dtype}{list(slot.shape)}")
    if slot.stride is not None and value.stride() != slot.stride:
        raise PackageError(f"tensor {slot.name!r} has the strides {list(value.stride())}, the program needs {list(slot.stride)}")
    return key, value


def _decode(value, nodes, device):
    """What _encode wrote; devices are `device` where one was asked for."""
    if isinstance(value, list):
        return [_decode(v, nodes, device) for v in value]
    if not isinstance(value, dict):
        return value
    (kind, inner), = value.items()
    if kind == "node":
        return nodes[inner]
    if kind == "tuple":
        return tuple(_decode(v, nodes, device) for v in inner)
    if kind == "float":
        return float(inner)
    if kind == "complex":
        return complex(*inner)
    if kind == "device":
        return device or torch.device(inner)
    if kind in ("dtype", "layout", "memory_format"):
        found = getattr(torch, inner, None)
        if isinstance(found, getattr(torch, kind)):
            return found
    raise PackageError(f"a value of unknown kind {kind!r}")


def _target(name: str):
    if name in _PYTHON:
        return _PYTHON[name]
    base, _, overload = name.rpartition(".")
    namespace, _, op = base.partition("::")
    if namespace not in _NAMESPACES or base in _REFUSED_OPS or not op.isidentifier():
        raise PackageError(f"the operator {name!r} is not allowed in a saved program")
    if namespace == "oneflow":
        from .._ops import custom  # noqa: F401  registers the operators
    found = getattr(getattr(torch.ops, namespace), op, None)
    found = getattr(found, overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise PackageError(f"this torch ({torch.__version__}) has no operator {name!r}")
    return found
