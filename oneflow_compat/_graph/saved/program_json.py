"""Read a Program from its record in program.json.

Every value passes a reader of reader.py before anything is built from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..._file_safety.shown import shown
from ..guards.dimensions import DimensionGuards
from ..program.locations import Argument, SavedValue
from ..program.program import ROLES, Output, Program, Slot
from ..program.pytree import keys_of
from ..program.recurrent_layer import CUDNN_MODES, Layer
from ..program.tensor_info import TensorInfo
from .dimensions import dimensions_record, read_dimensions
from .graph_json import GraphReader, tensor_of
from .reader import (
    PackageError,
    anything,
    boolean,
    choice,
    inside,
    integer,
    label,
    listed,
    optional,
    read_size,
    record,
    refuse,
    row,
    text,
)
from .structures import read_spec
from .values_json import decode, decode_device, decode_dtype

if TYPE_CHECKING:
    from ..program.locations import Location

_slot = record(
    {"tensor": label, "value": anything, "stride": optional(listed(integer(0)))},
    role=choice(*ROLES),
    name=label,
    shape=optional(listed(read_size)),
    dtype=anything,
    device=anything,
    written=boolean,
)
_REQUIRED = {
    "training": boolean,
    "slots": listed(_slot),
    "nodes": listed(anything),
    "outputs": listed(record(name=label)),
    "in_spec": anything,
    "out_spec": anything,
    "out_constants": listed(row(integer(0), anything)),
}
_OPTIONAL = {
    "unknown_sizes": boolean,
    "dimensions": optional(dimensions_record),
    "recurrent": listed(row(choice(*CUDNN_MODES), boolean, integer(0), integer(0), integer(0), boolean)),
    "in_constants": listed(row(integer(0), label, text)),
    "guard": optional(record(inputs=listed(integer(0)), nodes=listed(anything))),
}
_program = record(_OPTIONAL, **_REQUIRED)
PROGRAM_KEYS = (*_REQUIRED, *_OPTIONAL)


def read_program(
    name: str,
    document: dict[str, Any],
    location: str,
    tensors: dict[str, torch.Tensor],
    device: torch.device | None,
    state: dict[str, Any],
) -> Program:
    """Return the Program, and add the values that it reads to `state`.

    `device`: replaces the devices in the file.
    """
    contents = _program(document, location)
    location_of: Callable[[str], str] = lambda key: inside(location, key)
    slots = _read_slots(contents, tensors, state, device, location_of("slots"))
    dimensions = _dimensions_of(contents, slots, location_of("dimensions"))
    slots = [_with_symbolic_strides(slot, dimensions, location_of("slots")) for slot in slots]
    infos = [_info(slot) for slot in slots]
    constants: dict[str, torch.Tensor] = {}
    layers = [_layer(*values) for values in contents["recurrent"] or ()]
    graph = GraphReader(device, tensors, constants, layers)
    guard = GraphReader(device, tensors, constants, ())
    program = Program(
        name=name,
        graph=graph.read(contents["nodes"], infos, location_of("nodes")),
        slots=tuple(slots),
        outputs=tuple(Output(o["name"]) for o in contents["outputs"]),
        in_spec=read_spec(contents["in_spec"], location_of("in_spec")),
        out_spec=read_spec(contents["out_spec"], location_of("out_spec")),
        out_constants=_read_out_constants(contents, device, location_of("out_constants")),
        in_constants=tuple(contents["in_constants"] or ()),
        constants=constants,
        guard=contents["guard"] and _read_guard(contents["guard"], infos, guard, location_of("guard")),
        training=contents["training"],
        unknown_sizes=contents["unknown_sizes"] or False,
        dimensions=dimensions,
    )
    _check_call_of(program, location)
    return program.check()


def _read_guard(
    entry: dict[str, Any], infos: list[TensorInfo | None], graph: GraphReader, location: str
) -> tuple[torch.fx.Graph, tuple[int, ...]]:
    """Return (fx graph, indices of its inputs among the slots); see guards/conditions.py."""
    inputs = entry["inputs"]
    if any(i >= len(infos) for i in inputs):
        raise refuse(inside(location, "inputs"), f"indices of the {len(infos)} slots", inputs)
    return graph.read(entry["nodes"], [infos[i] for i in inputs], inside(location, "nodes")), tuple(inputs)


def _read_out_constants(
    contents: dict[str, Any], device: torch.device | None, location: str
) -> tuple[tuple[int, Any], ...]:
    return tuple((i, decode(value, {}, device, location)) for i, value in contents["out_constants"])


def _check_call_of(program: Program, location: str) -> None:
    """Raise unless there are as many arguments and outputs as leaves in the structures."""
    spec, arguments = program.in_spec, sum(s.role == "arg" for s in program.slots)
    children: Any = spec.children() if spec.type is tuple else ()
    has_keywords = [child.type for child in children] == [tuple, dict]
    if not has_keywords or not all(type(k) is str for k in keys_of(children[1].context)):
        expected = "a tuple of positional arguments and a dict of keyword arguments"
        raise refuse(inside(location, "in_spec"), expected, spec.type)
    fixed = [i for i, *_ in program.in_constants]
    _check_fixed(fixed, spec.num_leaves, range(arguments, arguments + 1), inside(location, "in_constants"))
    # a program may return more than build() does: gradients
    fixed, outputs = [i for i, _ in program.out_constants], range(len(program.outputs) + 1)
    _check_fixed(fixed, program.out_spec.num_leaves, outputs, inside(location, "out_constants"))


def _check_fixed(indices: list[int], leaves: int, tensors: range, location: str) -> None:
    """Raise unless values fixed at the capture belong to distinct leaves and `tensors` contains the count of
    the other leaves.
    """
    are_distinct = len(set(indices)) == len(indices) and all(i < leaves for i in indices)
    if not are_distinct or leaves - len(indices) not in tensors:
        expected = f"the indices of those of the {leaves} leaves that are none of the {tensors[-1]} tensors"
        raise refuse(location, expected, indices)


def _layer(cell: str, reverse: bool, steps: int, at: int, marks: int, differentiated: bool) -> Layer:
    layer = Layer(cell, reverse, steps, at)
    layer.marks, layer.differentiated = marks, differentiated
    return layer


# --------------------------------------------------------------------------- slots
def _read_slots(
    contents: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    state: dict[str, Any],
    device: torch.device | None,
    location: str,
) -> list[Slot]:
    """Return the slots, and add the values of all but the arguments to `state`."""
    fixed = {i for i, *_ in contents["in_constants"] or ()}
    leaves = (i for i in itertools.count() if i not in fixed)
    slots = []
    for index, entry in enumerate(contents["slots"]):
        here = f"{location}[{index}]"
        if entry["role"] == "arg":
            slots.append(_read_slot(entry, Argument(next(leaves)), device, here))
        else:
            is_named_alike = entry["shape"] is None or entry["tensor"] is None
            key = SavedValue(entry["name"] if is_named_alike else entry["tensor"])
            slots.append(_read_slot(entry, key, device, here))
            _keep_value(slots[-1], entry, tensors, state, device, here)
    return slots


def _info(slot: Slot) -> TensorInfo | None:
    """Return the metadata of a slot, or None for a number."""
    if slot.shape is None or slot.dtype is None or slot.device is None:
        return None
    return TensorInfo(slot.shape, slot.dtype, slot.device, slot.stride)


def _dimensions_of(contents: dict[str, Any], slots: list[Slot], location: str) -> DimensionGuards | None:
    shapes = {
        slot.location.index: slot.shape
        for slot in slots
        if isinstance(slot.location, Argument) and slot.shape is not None
    }
    return read_dimensions(contents["dimensions"], shapes, location)


def _read_slot(
    entry: dict[str, Any], live_location: Location, device: torch.device | None, location: str
) -> Slot:
    shape: Any
    stride: Any
    shape, stride = (None if entry[k] is None else tuple(entry[k]) for k in ("shape", "stride"))
    dtype = decode_dtype(entry["dtype"], inside(location, "dtype"))
    slot_device = decode_device(entry["device"], device, inside(location, "device"))
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


def _with_symbolic_strides(slot: Slot, dimensions: DimensionGuards | None, location: str) -> Slot:
    """Return the slot; an argument with symbols in its shape gets strides of these symbols."""
    if slot.shape is None or all(type(size) is int for size in slot.shape):
        return slot
    if slot.role != "arg":
        raise refuse(location, f"a shape of numbers for {shown(slot.name)}", slot.shape)
    argument: Any = slot.location
    assert dimensions is not None  # read_dimensions refuses symbols without guards
    return replace(slot, stride=dimensions.layouts[argument.index].stride)


def _keep_value(
    slot: Slot,
    entry: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    state: dict[str, Any],
    device: torch.device | None,
    location: str,
) -> None:
    """Put the value of a slot into `state`."""
    if slot.shape is None:
        value = decode(entry["value"], {}, device, inside(location, "value"))
        if type(value) not in (bool, int, float, complex) or isinstance(state.get(slot.name), torch.Tensor):
            raise refuse(inside(location, "value"), f"a number for the slot {shown(slot.name)}", value)
        state[slot.name] = value
        return
    saved: Any = slot.location
    key = saved.key
    value = tensor_of(key, tensors, location)
    if tuple(value.shape) != slot.shape or value.dtype != slot.dtype:
        raise PackageError(
            f"{location}: tensor {shown(slot.name)} is {value.dtype}{shown(list(value.shape))}, the program"
            " needs"
            f" {slot.dtype}{shown(list(slot.shape))}; save the graph again"
        )
    if slot.stride is not None and (value.layout is not torch.strided or value.stride() != slot.stride):
        strides = list(value.stride()) if value.layout is torch.strided else value.layout
        raise PackageError(
            f"{location}: tensor {shown(slot.name)} has the strides {shown(strides)}, the program needs"
            f" {shown(list(slot.stride))}; save the graph again"
        )
    if key in state and state[key] is not value:
        raise refuse(
            location, f"another name than {shown(key)} for a tensor, which is the name of a number", key
        )
    state[key] = value
