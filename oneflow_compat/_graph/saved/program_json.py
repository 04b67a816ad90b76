"""Reads a Program from its record in program.json.

Every value passes a reader of reader.py before anything is built from it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import torch
import torch.fx

from ..program.locations import Argument, SavedValue
from ..program.program import ROLES, Output, Program, Slot
from ..program.pytree import keys_of
from ..program.recurrent_layer import CUDNN_MODES, Layer
from ..program.tensor_info import TensorInfo, describe
from .dimensions import dimensions_record, read_dimensions
from .operators import check_call, is_scalar, target_of
from .reader import (
    INT64,
    PackageError,
    anything,
    boolean,
    choice,
    identifier,
    inside,
    integer,
    label,
    listed,
    mapping,
    number,
    optional,
    record,
    refuse,
    row,
    shown,
    text,
)
from .structures import read_spec

_DEEPEST = 20  # lists in the arguments of a node
_DEVICE = re.compile(r"[a-z0-9]{1,20}(:[0-9]{1,3})?\Z")
_NAMED = {
    kind: {
        str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, getattr(torch, kind))
    }
    for kind in ("dtype", "layout", "memory_format")
}


def _size(value, location):
    """Read a dimension: an integer, or the text of a dimension that depends on values."""
    return label(value, location) if type(value) is str else integer(0)(value, location)


_slot = record(
    {"tensor": label, "value": anything, "stride": optional(listed(integer(0)))},
    role=choice(*ROLES),
    name=label,
    shape=optional(listed(_size)),
    dtype=anything,
    device=anything,
    written=boolean,
)
_info = row(listed(_size), anything, anything, optional(listed(_size)))
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
_program = record(
    {
        "unknown_sizes": boolean,
        "dimensions": optional(dimensions_record),
        "recurrent": listed(row(choice(*CUDNN_MODES), boolean, integer(0), integer(0), integer(0), boolean)),
        "in_constants": listed(row(integer(0), label, text)),
        "guard": optional(record(inputs=listed(integer(0)), nodes=listed(anything))),
    },
    training=boolean,
    slots=listed(_slot),
    nodes=listed(anything),
    outputs=listed(record(name=label)),
    in_spec=anything,
    out_spec=anything,
    out_constants=listed(row(integer(0), anything)),
)
PROGRAM_KEYS = (
    "training",
    "unknown_sizes",
    "dimensions",
    "slots",
    "nodes",
    "recurrent",
    "outputs",
    "in_spec",
    "out_spec",
    "out_constants",
    "in_constants",
    "guard",
)


def read_program(name, document, location, tensors, device, state):
    """Return the Program, and add the values that it reads to `state`.

    `device`: replaces the devices in the file.
    """
    contents = _program(document, location)
    location_of = lambda key: inside(location, key)
    slots, fixed = [], {i for i, *_ in contents["in_constants"] or ()}
    leaves = (i for i in itertools.count() if i not in fixed)
    for index, entry in enumerate(contents["slots"]):
        here = f"{location_of('slots')}[{index}]"
        if entry["role"] == "arg":
            slots.append(_read_slot(entry, Argument(next(leaves)), device, here))
        else:
            has_own_tensor = entry["shape"] is None or entry["tensor"] is None
            location_in_state = SavedValue(entry["name"] if has_own_tensor else entry["tensor"])
            slots.append(_read_slot(entry, location_in_state, device, here))
            _keep_value(slots[-1], entry, tensors, state, device, here)
    shapes = {s.location.index: s.shape for s in slots if s.role == "arg"}
    dimensions = read_dimensions(contents["dimensions"], shapes, location_of("dimensions"))
    slots = [_with_symbolic_strides(slot, dimensions, location_of("slots")) for slot in slots]
    infos = [None if s.shape is None else TensorInfo(s.shape, s.dtype, s.device, s.stride) for s in slots]
    constants: dict = {}
    layers = [_layer(*values) for values in contents["recurrent"] or ()]
    graph = _Graph(device, tensors, constants, layers).read(contents["nodes"], infos, location_of("nodes"))
    guard = None
    if contents["guard"] is not None:
        guard = _read_guard(
            contents["guard"], infos, _Graph(device, tensors, constants, ()), location_of("guard")
        )
    program = Program(
        name=name,
        graph=graph,
        slots=tuple(slots),
        outputs=tuple(Output(o["name"]) for o in contents["outputs"]),
        in_spec=read_spec(contents["in_spec"], location_of("in_spec")),
        out_spec=read_spec(contents["out_spec"], location_of("out_spec")),
        out_constants=tuple(
            (i, decode(v, {}, device, location_of("out_constants"))) for i, v in contents["out_constants"]
        ),
        in_constants=tuple(contents["in_constants"] or ()),
        constants=constants,
        guard=guard,
        training=contents["training"],
        unknown_sizes=contents["unknown_sizes"] or False,
        dimensions=dimensions,
    )
    _check_call_of(program, location)
    return program.check()


def _check_call_of(program, location):
    """Raise unless there are as many arguments and outputs as leaves in the structures."""
    spec, arguments = program.in_spec, sum(s.role == "arg" for s in program.slots)
    pair = spec.type is tuple and len(spec.children()) == 2
    if (
        not pair
        or [c.type for c in spec.children()] != [tuple, dict]
        or not all(type(k) is str for k in keys_of(spec.children()[1].context))
    ):
        raise refuse(
            inside(location, "in_spec"), "a tuple of positional arguments and a dict of named ones", str(spec)
        )
    _check_fixed(
        "in_constants",
        [i for i, *_ in program.in_constants],
        spec.num_leaves,
        range(arguments, arguments + 1),
        location,
    )
    # a program may return more than build() does: gradients
    _check_fixed(
        "out_constants",
        [i for i, _ in program.out_constants],
        program.out_spec.num_leaves,
        range(len(program.outputs) + 1),
        location,
    )


def _check_fixed(key, indices, leaves, tensors, location):
    """Raise unless values fixed at the capture belong to distinct leaves and `tensors` contains the count of
    the other leaves.
    """
    if (
        len(set(indices)) != len(indices)
        or any(i >= leaves for i in indices)
        or leaves - len(indices) not in tensors
    ):
        raise refuse(
            inside(location, key),
            f"the indices of those of the {leaves} leaves that are none of the {tensors[-1]} tensors",
            indices,
        )


def _layer(kind, reverse, steps, place, marks, differentiated):
    layer = Layer(kind, reverse, steps, place)
    layer.marks, layer.differentiated = marks, differentiated
    return layer


# --------------------------------------------------------------------------- slots
def _read_slot(entry, live_location, device, location):
    shape, stride = (None if entry[k] is None else tuple(entry[k]) for k in ("shape", "stride"))
    dtype, slot_device = (
        _dtype(entry["dtype"], inside(location, "dtype")),
        _device(entry["device"], device, inside(location, "device")),
    )
    complete = None not in (shape, dtype, slot_device) and (stride is None or len(stride) == len(shape))
    if not complete and (entry["role"] == "arg" or (shape, stride, dtype, slot_device) != (None,) * 4):
        raise refuse(
            location,
            "a shape with strides, a dtype and a device",
            {k: entry[k] for k in ("shape", "stride", "dtype", "device")},
        )
    return Slot(
        entry["role"], entry["name"], live_location, shape, dtype, slot_device, stride, entry["written"]
    )


def _with_symbolic_strides(slot, dimensions, location):
    """An argument with symbols in its shape has strides of these symbols; other shapes are numbers."""
    if slot.shape is None or all(type(size) is int for size in slot.shape):
        return slot
    if slot.role != "arg":
        raise refuse(location, f"a shape of numbers for {slot.name!r}", slot.shape)
    return replace(slot, stride=dimensions.layouts[slot.location.index].stride)


def _dtype(value, location):
    if value is None:
        return None
    dtype = decode(value, {}, None, location)
    if not isinstance(dtype, torch.dtype):
        raise refuse(location, "a dtype", value)
    return dtype


def _device(value, device, location):
    if value is None:
        return None
    return decode({"device": value}, {}, device, location)


def _keep_value(slot, entry, tensors, state, device, location):
    """Put the value of a slot into `state`."""
    if slot.shape is None:
        value = decode(entry["value"], {}, device, inside(location, "value"))
        if type(value) not in (bool, int, float, complex) or isinstance(state.get(slot.name), torch.Tensor):
            raise refuse(inside(location, "value"), f"a number for the slot {slot.name!r}", value)
        state[slot.name] = value
        return
    key = slot.location.key
    value = _tensor(key, tensors, location)
    if tuple(value.shape) != slot.shape or value.dtype != slot.dtype:
        raise PackageError(
            f"{location}: tensor {slot.name!r} is {value.dtype}{list(value.shape)}, the program needs"
            f" {slot.dtype}{list(slot.shape)}; save the graph again"
        )
    if slot.stride is not None and (value.layout is not torch.strided or value.stride() != slot.stride):
        found = list(value.stride()) if value.layout is torch.strided else value.layout
        raise PackageError(
            f"{location}: tensor {slot.name!r} has the strides {found}, the program needs"
            f" {list(slot.stride)}; save the graph again"
        )
    if key in state and state[key] is not value:
        raise refuse(location, f"another name than {key!r} for a tensor, which is the name of a number", key)
    state[key] = value


def _tensor(key, tensors, location):
    if key not in tensors:
        raise PackageError(
            f"{location} is damaged: tensors.pt has no tensor {shown(key)}; save the graph again"
        )
    return tensors[key]


# --------------------------------------------------------------------------- nodes
class _Graph:
    """A reader for the nodes of one fx graph.

    Constants are added to `constants`; `layers` are the recurrent layers that nodes belong to.
    """

    def __init__(self, device, tensors, constants, layers):
        self.device, self.tensors, self.constants, self.layers = device, tensors, constants, layers
        self.graph, self.nodes = torch.fx.Graph(), {}

    def read(self, records, infos, location):
        """Return the fx graph; `infos` describe the placeholders."""
        infos, readers = (
            list(infos),
            {"placeholder": self._placeholder, "get_attr": self._constant, "call": self._call},
        )
        count = len(infos)
        for index, node_record in enumerate(records):
            here = f"{location}[{index}]"
            op = node_record.get("op") if type(node_record) is dict else None
            if type(op) is not str or op not in _node or (op == "output") is not (index == len(records) - 1):
                raise refuse(
                    here,
                    "a placeholder, get_attr or call, and one output at the end",
                    op if type(node_record) is dict else node_record,
                )
            entry = _node[op](node_record, here)
            if op == "output":
                self._output(entry, here)
                break
            if entry["name"] in self.nodes:
                raise refuse(here, "a name that no other node has", entry["name"])
            self.nodes[entry["name"]] = readers[op](entry, infos, here)
        else:
            raise refuse(location, "an output", [])
        if infos:
            raise refuse(location, f"{count} placeholders", count - len(infos))
        return self.graph

    def _output(self, entry, location):
        results = self._decoded(entry["args"], inside(location, "args"))
        if not all(map(is_scalar, results)):
            raise refuse(inside(location, "args"), "results of nodes and numbers", entry["args"])
        self.graph.output(tuple(results))

    def _placeholder(self, entry, infos, location):
        if not infos:
            raise refuse(location, "as many placeholders as slots", entry["name"])
        node = self.graph.placeholder(entry["name"])
        node.meta["tensor"] = infos.pop(0)
        return node

    def _constant(self, entry, infos, location):
        target = entry["target"]
        constant = _tensor(
            f"constant:{target}" if entry["tensor"] is None else entry["tensor"], self.tensors, location
        )
        if hasattr(torch.nn.Module, target) or self.constants.setdefault(target, constant) is not constant:
            raise refuse(inside(location, "target"), "a name of its own for a constant", target)
        node = self.graph.create_node("get_attr", target, name=entry["name"])
        node.meta["tensor"] = describe(constant)
        return node

    def _call(self, entry, infos, location):
        target = target_of(entry["target"], inside(location, "target"))
        args = tuple(self._decoded(entry["args"], inside(location, "args")))
        kwargs = {k: self._decoded(v, f"{location}.kwargs.{k}") for k, v in (entry["kwargs"] or {}).items()}
        check_call(target, args, kwargs, location)
        node = self.graph.create_node("call_function", target, args, kwargs, name=entry["name"])
        node.meta.update(self._meta(entry, location))
        return node

    def _meta(self, entry, location):
        """Return the metadata of a node that the backends read."""
        meta = {k: entry[k] for k in ("module", "phase", "recomputed") if entry[k] is not None} | {
            "tensor": None
        }
        if entry["tensor"] is not None:
            shape, dtype, device, stride = entry["tensor"]
            here = inside(location, "tensor")
            dtype, device = _dtype(dtype, here), self._decoded(device, here)
            if (
                dtype is None
                or not isinstance(device, torch.device)
                or stride is not None
                and len(stride) != len(shape)
            ):
                raise refuse(here, "a shape, a dtype, a device and strides", entry["tensor"])
            meta["tensor"] = TensorInfo(
                tuple(shape), dtype, device, None if stride is None else tuple(stride)
            )
        if entry["recurrent"] is not None:
            if any(index >= len(self.layers) for index, *_ in entry["recurrent"]):
                raise refuse(
                    inside(location, "recurrent"),
                    f"one of the {len(self.layers)} recurrent layers",
                    entry["recurrent"],
                )
            meta["recurrent"] = tuple(
                (self.layers[index], role, step) for index, role, step in entry["recurrent"]
            )
        return meta

    def _decoded(self, value, location):
        return decode(value, self.nodes, self.device, location)


def _read_guard(entry, infos, graph, location):
    """Return (fx graph, indices of its inputs among the slots); see scalar_guards.py."""
    inputs = entry["inputs"]
    if any(i >= len(infos) for i in inputs):
        raise refuse(inside(location, "inputs"), f"indices of the {len(infos)} slots", inputs)
    return graph.read(entry["nodes"], [infos[i] for i in inputs], inside(location, "nodes")), tuple(inputs)


# --------------------------------------------------------------------------- values
def decode(value, nodes, device, location, depth=0):
    """Decode a value that package.encode wrote, with `nodes` by name. If `device` is set, it replaces every
    device.
    """
    if depth > _DEEPEST:
        raise PackageError(
            f"{location} is damaged: values are nested more than {_DEEPEST} deep; save the graph again"
        )
    if type(value) is list:
        return [decode(v, nodes, device, location, depth + 1) for v in value]
    if type(value) is dict:
        return _decode_tagged(value, nodes, device, location, depth)
    if type(value) is int and not INT64[0] <= value < 2**64:
        raise refuse(location, "an integer of 64 bits", value)
    if type(value) is float:
        return number(value, location)
    return value


def _decode_tagged(value, nodes, device, location, depth):
    if len(value) != 1:
        raise refuse(location, "an object with one key", value)
    ((tag, inner),) = value.items()
    if tag == "tuple" and type(inner) is list:
        return tuple(decode(v, nodes, device, location, depth + 1) for v in inner)
    if tag == "complex":
        return complex(*row(_part, _part)(inner, location))
    if type(inner) is not str:
        raise refuse(location, "a node, tuple, float, complex, dtype, layout, memory_format or device", value)
    if tag == "node":
        if inner not in nodes:
            raise PackageError(
                f"{location} is damaged: no node before this one is named {shown(inner)}; save the graph"
                " again"
            )
        return nodes[inner]
    if tag == "float" and inner in ("nan", "inf", "-inf"):
        return float(inner)
    if tag == "device" and _DEVICE.match(inner):
        return device or _known_device(inner, location)
    if tag in _NAMED and inner in _NAMED[tag]:
        return _NAMED[tag][inner]
    raise refuse(location, "a node, tuple, float, complex, dtype, layout, memory_format or device", value)


def _known_device(name, location):
    try:
        return torch.device(name)
    except RuntimeError:
        raise refuse(location, "a device that torch knows", name) from None


def _part(value, location):
    """Read the real or imaginary part of a complex value."""
    if (
        type(value) is not float
        and type(value) is not int
        or type(value) is int
        and not INT64[0] <= value <= INT64[1]
    ):
        raise refuse(location, "a number", value)
    return value
