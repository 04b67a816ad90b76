"""A Program on disk: program.json (the graph, readable) and tensors.pt (what it reads), loaded without running anything from them.

Operators are stored by name and looked up among torch's; python functions come from a short list.
tensors.pt is read by torch's weights-only unpickler. A file that is damaged or foreign gives a PackageError.
"""
from __future__ import annotations

import json
import math
import operator
import os
import shutil
import tempfile

import torch
import torch.fx
import torch.utils._pytree as pytree

from .codegen import compile_program
from .errors import ProgramError
from .program import Output, Program, Slot
from .random_state import PYTHON_NAMES
from .tree import keys_of, plain_spec, tree_flatten

FORMAT = 2
_PYTHON = {f"operator.{n}": getattr(operator, n) for n in ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "neg", "abs", "getitem", "eq", "ne", "lt", "le", "gt", "ge")}
_PYTHON |= {f"math.{n}": getattr(math, n) for n in ("sqrt", "exp", "log", "log1p", "expm1", "pow", "cos", "sin", "tanh", "floor", "ceil")}
_PYTHON |= {f"torch.{n}": getattr(torch, n) for n in ("sym_min", "sym_max", "sym_float", "sym_int", "sym_not", "sym_ite", "sym_sum")}
_PYTHON |= PYTHON_NAMES
_PYTHON_NAME = {id(f): n for n, f in _PYTHON.items()}
_NAMESPACES = ("aten", "prims", "prim", "oneflow")
_REFUSED_OPS = ("aten::from_file", "aten::save")  # they touch files named in their arguments


class PackageError(ProgramError):
    """A saved program cannot be written or read; the text names the file and what is wrong."""


# --------------------------------------------------------------------------- writing
def save(program: Program, values, folder: str) -> None:
    """Write a program with the values of its slots (in order; ignored for arguments). The folder appears whole or not at all."""
    document, tensors = _document(program, values)
    folder = os.path.abspath(os.fspath(folder))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise PackageError(f"{folder} is a file; a graph is saved into a folder")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".graph-", dir=os.path.dirname(folder))
    try:
        with open(os.path.join(temporary, "program.json"), "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
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


def _document(program, values):
    """(what program.json holds, what tensors.pt holds)"""
    nodes, tensors = [], {}
    for node in program.graph.nodes:
        if node.op == "output":
            nodes.append({"op": "output", "args": _encode(list(node.args[0]))})
        elif node.op == "placeholder":
            nodes.append({"op": "placeholder", "name": node.name})
        elif node.op == "get_attr":
            nodes.append({"op": "get_attr", "name": node.name, "target": node.target})
        else:
            record = {"op": "call", "name": node.name, "target": _target_name(node.target), "args": _encode(list(node.args))}
            if node.kwargs:
                record["kwargs"] = {k: _encode(v) for k, v in node.kwargs.items()}
            if node.meta.get("module"):
                record["module"] = node.meta["module"]
            nodes.append(record)
    slots = []
    for slot, value in zip(program.slots, values):
        record = {"role": slot.role, "name": slot.name, "shape": None if slot.shape is None else list(slot.shape),
                  "dtype": slot.dtype and _encode(slot.dtype), "device": slot.device and str(slot.device), "written": slot.written}
        if slot.role != "arg":
            if isinstance(value, torch.Tensor):
                tensors[slot.name] = value.detach()
            else:
                record["value"] = _encode(value)
        slots.append(record)
    for name, value in program.constants.items():
        tensors[f"constant:{name}"] = value.detach()
    document = {
        "format": FORMAT, "name": program.name, "training": program.training, "slots": slots, "nodes": nodes,
        "outputs": [{"name": o.name} for o in program.outputs],
        "in_spec": pytree.treespec_dumps(plain_spec(program.in_spec)), "out_spec": pytree.treespec_dumps(plain_spec(program.out_spec)),
        "out_constants": [[i, _encode(v)] for i, v in program.out_constants], "in_constants": program.in_constants,
    }
    return document, tensors


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
def load(folder: str, map_location=None) -> "LoadedProgram":
    """The program in `folder`, ready to call."""
    path = os.path.join(os.fspath(folder), "program.json")
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise PackageError(f"no graph in {folder}: {path} is missing") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise PackageError(f"{path} is damaged: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PackageError(f"{path} is not a graph of format {FORMAT}: found format {document.get('format') if isinstance(document, dict) else type(document).__name__!r}")
    data = os.path.join(os.fspath(folder), "tensors.pt")
    try:
        tensors = torch.load(data, map_location=_there(map_location), weights_only=True)
    except FileNotFoundError:
        raise PackageError(f"no graph in {folder}: {data} is missing") from None
    except Exception as error:
        raise PackageError(f"{data} cannot be read; it is damaged, or of a device that is not here (map_location= names another): {str(error).splitlines()[0]}") from None
    try:
        program, values = _program(document, tensors, map_location)
        program.check()
        if isinstance(map_location, (str, torch.device)) and torch.device(map_location).type != "meta":
            _check_kernels(program, torch.device(map_location))
    except PackageError as error:
        raise PackageError(f"{path}: {error}") from None
    except Exception as error:
        raise PackageError(f"{path} is damaged: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from None
    return LoadedProgram(program, values)


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


def _program(document, tensors, map_location):
    device = torch.device(map_location) if isinstance(map_location, (str, torch.device)) else None
    graph, nodes, constants = torch.fx.Graph(), {}, {}

    def decode(value):
        return _decode(value, nodes, device)

    for record in document["nodes"]:
        if record["op"] == "placeholder":
            nodes[record["name"]] = graph.placeholder(record["name"])
        elif record["op"] == "get_attr":
            constants[record["target"]] = tensors[f"constant:{record['target']}"]
            nodes[record["name"]] = graph.create_node("get_attr", record["target"], name=record["name"])
        elif record["op"] == "call":
            kwargs = {k: decode(v) for k, v in record.get("kwargs", {}).items()}
            node = graph.create_node("call_function", _target(record["target"]), tuple(decode(record["args"])), kwargs, name=record["name"])
            node.meta["module"] = record.get("module")
            nodes[record["name"]] = node
        elif record["op"] == "output":
            graph.output(tuple(decode(record["args"])))
        else:
            raise PackageError(f"a node of unknown kind {record['op']!r}")
    slots = [_slot(index, record, tensors, decode) for index, record in enumerate(document["slots"])]
    program = Program(
        name=document["name"], graph=graph, slots=tuple(slot for slot, _ in slots), outputs=tuple(Output(o["name"]) for o in document["outputs"]),
        in_spec=pytree.treespec_loads(document["in_spec"]), out_spec=pytree.treespec_loads(document["out_spec"]),
        out_constants=tuple((i, decode(v)) for i, v in document["out_constants"]), in_constants=tuple(map(tuple, document.get("in_constants", ()))),
        constants=constants, training=document["training"],
    )  # fmt: skip
    return program, [value for _, value in slots]


def _slot(index, record, tensors, decode):
    """(Slot, its value; None for an argument)"""
    shape = None if record["shape"] is None else tuple(record["shape"])
    device = record["device"] and decode({"device": record["device"]})
    slot = Slot(record["role"], record["name"], ("loaded", index), shape, record["dtype"] and decode(record["dtype"]), device, None, record["written"])
    if slot.role == "arg":
        return slot, None
    value = decode(record["value"]) if shape is None else tensors[slot.name]
    if shape is not None and (tuple(value.shape) != shape or value.dtype != slot.dtype):
        raise PackageError(f"tensor {slot.name!r} is {value.dtype}{list(value.shape)}, the program needs {slot.dtype}{list(shape)}")
    return slot, value


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


class _Text(str):
    __repr__ = str.__str__


def _form(spec, texts):
    """A call's arguments, each leaf as its text."""
    args, kwargs = pytree.tree_unflatten([_Text(t) for t in texts], spec)
    return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def _kind(leaf):
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)


class LoadedProgram:
    """A program read from disk: call it with the arguments build() took. State (weights, optimizer slots) lives in it."""

    def __init__(self, program: Program, values):
        self.program = program
        self._values = values
        self._args = [i for i, s in enumerate(program.slots) if s.role == "arg"]
        self._run = compile_program(program)
        keywords = program.in_spec.children()[1]
        self._keywords = keys_of(keywords.context) if keywords.children() else ()

    def _form(self):
        fixed = {i: text for i, _, text in self.program.in_constants}
        tensors = (f"{s.dtype}{list(s.shape)}" for s in self.program.slots if s.role == "arg")
        return _form(self.program.in_spec, (fixed[i] if i in fixed else next(tensors, "tensor") for i in range(self.program.in_spec.num_leaves)))

    name = property(lambda self: self.program.name)
    training = property(lambda self: self.program.training)

    def __call__(self, *args, **kwargs):
        if kwargs.keys() == set(self._keywords):
            kwargs = {k: kwargs[k] for k in self._keywords}
        leaves, spec = tree_flatten((args, kwargs))
        if plain_spec(spec) != self.program.in_spec:
            raise TypeError(f"graph {self.name} was saved for the call {self._form()}, found {_form(spec, map(_kind, leaves))}")
        for i, name, text in self.program.in_constants:
            if repr(leaves[i]) != text:
                raise ValueError(f"argument {name!r} of graph {self.name} was {text} when it was saved, found {leaves[i]!r}; "
                                 "values of Python are fixed in a saved program, save another one for others")
        fixed = {i for i, _, _ in self.program.in_constants}
        return self.run([v for i, v in enumerate(leaves) if i not in fixed])

    def warm_up(self):
        """One run on zeros."""
        slots = [self.program.slots[i] for i in self._args]
        self.run([torch.zeros(s.shape, dtype=s.dtype, device=s.device) for s in slots])

    def run(self, given):
        """What build() returned, of the tensors among its arguments."""
        values = list(self._values)
        for index, value in zip(self._args, given, strict=True):
            slot = self.program.slots[index]
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"argument {slot.name!r} of graph {self.name} must be a tensor, found {type(value).__name__}")
            if tuple(value.shape) != slot.shape or value.dtype != slot.dtype:
                raise TypeError(f"argument {slot.name!r} of graph {self.name} must be {slot.dtype}{list(slot.shape)}, found {value.dtype}{list(value.shape)}; "
                                "a saved program holds for one shape, save another one for others")
            values[index] = value.to(slot.device) if value.device != slot.device else value
        with torch._C._DisableAutocast(), torch.set_grad_enabled(self.program.training or torch.is_grad_enabled()):  # oneDNN's LSTM keeps what backward needs only then
            keep = torch._C._AutoDispatchBelowAutograd()
            try:
                out = iter(self._run(*values))
            finally:
                del keep  # a traceback of an error would keep it
        fixed = dict(self.program.out_constants)
        flat = [fixed[i] if i in fixed else next(out) for i in range(self.program.out_spec.num_leaves)]
        return pytree.tree_unflatten(flat, self.program.out_spec)

    def state_dict(self):
        """{slot name: tensor or number} of everything the program reads besides its arguments, the live objects."""
        return {s.name: v for s, v in zip(self.program.slots, self._values) if s.role != "arg"}

    def load_state_dict(self, state):
        """Copy tensors and numbers in; names and shapes must be those of state_dict()."""
        mine = self.state_dict()
        if mine.keys() != state.keys():
            raise RuntimeError(f"graph {self.name}: names differ: {sorted(mine.keys() ^ state.keys())}")
        for name, value in state.items():
            if isinstance(mine[name], torch.Tensor) and mine[name].shape != value.shape:
                raise RuntimeError(f"graph {self.name}: {name!r} has the shape {list(value.shape)}, needed {list(mine[name].shape)}")
        for i, slot in enumerate(self.program.slots):
            if slot.name in state and slot.role != "arg":
                if isinstance(self._values[i], torch.Tensor):
                    self._values[i].copy_(state[slot.name])
                else:
                    self._values[i] = state[slot.name]

    @property
    def lr(self):
        """The learning rates, {slot name: number}; set_lr() changes them (a saved program has no schedule)."""
        return {s.name: v for s, v in zip(self.program.slots, self._values) if s.role == "lr"}

    def set_lr(self, value, name=None):
        """Set one learning rate, or all of them."""
        names = list(self.lr) if name is None else [name]
        for wanted in names:
            if wanted not in self.lr:
                raise KeyError(f"graph {self.name} has no learning rate {wanted!r}; there are {list(self.lr)}")
            self._values[next(i for i, s in enumerate(self.program.slots) if s.name == wanted)] = float(value)

    def save(self, folder):
        """Write the program with its state as it is now."""
        save(self.program, self._values, folder)

    def __repr__(self):
        return f"LoadedProgram({self.name}, {'training' if self.training else 'inference'}, {self.program.count()} operators)"
