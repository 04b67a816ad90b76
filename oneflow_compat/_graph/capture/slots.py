"""The slots of a captured graph: what each input stands for, and where its live value lies."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

import torch

from ..._global.marks import OfSeveralRanks
from ..._global.tensor import memory_of
from ..guards.adoption import tensor_pairs
from ..program.locations import Argument, FreeTensor, Gradient, GroupOption, OptimizerState
from ..program.nested_state import leaves
from ..program.program import Slot, roots, written_args
from ..program.writes import overlapping_slots

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ..program.program import Program
    from .interfaces import CaptureInterface


_RESERVED = re.compile(r"[cfk]\d+|abs|math|ops|device")  # names that the generated code uses (codegen.py)


def slots_of(capture: CaptureInterface, graph: Graph) -> Any:
    """Return (slots, free tensors, free index) of a captured graph.

    There is one Slot for each placeholder, in order. The free tensors are in no module and no optimizer. The
    free index maps the id of each lifted tensor to its index among these, or to None.
    """
    return _Naming(capture).slots(graph)


class _Naming:
    """Role, name and location of each placeholder."""

    def __init__(self, capture: CaptureInterface) -> None:
        recorder, update = capture.recorder, capture.update
        self.state = capture.state
        self.owners: dict[Any, Any] = {}  # node -> the real tensor that it was lifted for
        for tensor, node, _ in recorder.lifted.values():
            self.owners.setdefault(node, tensor)
        self.gradient_names = capture.gradient_names
        self.optimizer_locations = _optimizer_locations(capture)
        inputs = update.inputs if update is not None else {}
        self.scalar_inputs = {node: location for location, node in inputs.items()}
        self.numbers, self.number_locations = capture.number_inputs.nodes, capture.number_inputs.locations()
        self.arguments = [
            Argument(i, isinstance(leaf, OfSeveralRanks))
            for i, leaf in enumerate(capture.args_flat)
            if isinstance(leaf, torch.Tensor)
        ]
        self.free: list[Any] = []
        self.free_index = dict.fromkeys(recorder.lifted)

    def slots(self, graph: Graph) -> tuple[Any, ...]:
        written = {n for node in graph.nodes if node.op == "call_function" for n in roots(written_args(node))}
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        arguments, slots = iter(self.arguments), []
        for node in placeholders:
            if node in self.owners:
                named = self._of_tensor(self.owners[node])
            elif node in self.scalar_inputs:
                location = self.scalar_inputs[node]
                named = "lr" if isinstance(location, GroupOption) else "optim", _name(location), location
            elif node in self.numbers:
                named = "number", self.numbers[node].label, self.number_locations[node]
            else:
                named = "arg", node.target, next(arguments)
            node.meta.pop("value", None)
            slots.append(Slot(*named, **_metadata(node, node in written)))
        assert next(arguments, None) is None, "an argument has no placeholder"
        _rename(placeholders, slots, {n.name for n in graph.nodes} - {n.name for n in placeholders})
        return tuple(slots), self.free, self.free_index

    def _of_tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        entry = self.state.entry(tensor)
        if entry is not None:
            return entry.role, entry.name, entry.location
        parameter = self.gradient_names.get(id(tensor))
        if parameter is not None:
            return "grad", f"{parameter}.grad", Gradient(parameter)
        location = self.optimizer_locations.get(id(tensor))
        if location is not None:
            return "optim", _name(location), location
        index = self.free_index[id(tensor)] = len(self.free)
        self.free.append(tensor)
        return "free", f"free{index}", FreeTensor(index)


def shared_memory(capture: CaptureInterface, program: Program) -> tuple[Any, ...]:
    """Return (overlapping slots, named tensors, other tensors merged into another's slot) of a program.

    Tensors that no guard compares were made for the capture only, as `p.data` is.
    """
    pairs = (pair for guard in capture.observed.guards for pair in tensor_pairs(guard.value, None))
    read = {id(tensor) for tensor, _ in pairs}
    tensors: dict[Any, Any] = {}
    for tensor, node, _ in capture.recorder.lifted.values():
        tensors.setdefault(node, []).append(tensor)
    values: list[Any] = []
    merged: list[Any] = []
    merged_free: list[Any] = []
    for i, (node, slot) in enumerate(zip(program.placeholders, program.slots)):
        if isinstance(slot.location, Argument):
            values.append(capture.args_flat[slot.location.index])
            continue
        representative, *rest = tensors.get(node, [None])
        values.append(representative)
        for tensor in rest:
            entry = capture.state.entry(tensor)
            if entry is None:
                merged_free += [(i, tensor)] if id(tensor) in read else []
            elif entry.tensor is not representative:
                merged.append((i, entry))
    return overlapping_slots(program.slots, values), tuple(merged), tuple(merged_free)


def _metadata(node: Node, written: Any) -> dict[Any, Any]:
    info = node.meta.get("tensor")
    if info is None:
        return {}
    return dict(shape=info.shape, dtype=info.dtype, device=info.device, stride=info.stride, written=written)


def _optimizer_locations(capture: CaptureInterface) -> Any:
    """Return {id(tensor): location} of the tensors in optimizer state and in options of parameter groups."""
    locations: dict[Any, Any] = {}
    for o, (optimizer, _) in enumerate(capture.state.optimizers):
        for g, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    locations[id(memory_of(value))] = GroupOption(o, g, (key,))
        for param, state in optimizer.state.items():
            for path, value in leaves(state):
                if isinstance(value, torch.Tensor):
                    name = capture.state.name_of(param)
                    locations[id(memory_of(value))] = OptimizerState(o, name, tuple(path))
    for created in capture.new_state:
        locations[id(created.tensor)] = created.location
    return locations


def _name(location: Any) -> str:
    """Return the name of a slot of optimizer state: optimizer0.model.weight.exp_avg, optimizer0.group1.lr."""
    owner = f"group{location.group}" if isinstance(location, GroupOption) else location.parameter
    return ".".join((f"optimizer{location.optimizer}.{owner}", *map(str, location.keys)))


def _rename(placeholders: Any, slots: Any, used: Any) -> None:
    """Give placeholders readable names that are not in `used` and are no Python keywords."""
    for node, slot in zip(placeholders, slots):
        base = "".join(c if c.isalnum() else "_" for c in slot.name)
        base = base if base and not base[0].isdigit() else "t_" + base
        base = base + "_" if _RESERVED.fullmatch(base) or keyword.iskeyword(base) else base
        name, k = base, 1
        while name in used:
            name, k = f"{base}_{k}", k + 1
        used.add(name)
        node.name = name
        node.target = name
