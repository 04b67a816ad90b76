"""The slots of a captured graph: what each input stands for, and where its live value is at each call."""

from __future__ import annotations

import keyword
import re

import torch

from ..._global.tensor import memory_of
from .nested_state import leaves
from .program import Slot, roots, written_args

_TAKEN = re.compile(r"[cfk]\d+|abs|math|ops|device")  # names that the generated code uses (codegen.py)


def slots_of(capture, graph):
    """Return (slots, free tensors, free_of) of a captured graph.

    There is one Slot for each placeholder, in order. The free tensors are in no module and no optimizer.
    `free_of` maps the id of a lifted tensor to its index among these, or to None.
    """
    recorder, state = capture.recorder, capture.state
    owner: dict = {}  # node -> the real tensor it was lifted for
    for tensor, node, _ in recorder.lifted.values():
        owner.setdefault(node, tensor)
    written = {n for node in graph.nodes if node.op == "call_function" for n in roots(written_args(node))}
    optim = _optimizer_tensors(capture)
    number_inputs = capture.update.numbers if capture.update is not None else {}
    slots, free, free_of, arguments = [], [], dict.fromkeys(recorder.lifted), 0
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for node in placeholders:
        info = node.meta.get("tensor")
        metadata = (
            dict(
                shape=info.shape,
                dtype=info.dtype,
                device=info.device,
                stride=info.stride,
                written=node in written,
            )
            if info
            else {}
        )
        if node in owner:
            tensor = owner[node]
            entry = state.entry(tensor)
            if entry is not None:
                named = entry[:3]
            elif id(tensor) in optim:
                named = optim[id(tensor)]
            else:
                named = "free", f"free{len(free)}", ("free", len(free))
                free_of[id(tensor)] = len(free)
                free.append(tensor)
        elif node in number_inputs:
            container, o, owner_key, *path = number_inputs[node]
            named = (
                ("lr", *_of_group(o, owner_key, path))
                if container == "group"
                else ("optim", *_of_state(state, o, owner_key, path))
            )
        else:
            named = "arg", node.target, ("arg", arguments)
            arguments += 1
        node.meta.pop("value", None)
        slots.append(Slot(*named, **metadata))
    expected = sum(isinstance(v, torch.Tensor) for v in capture.args_flat)
    assert arguments == expected, (arguments, expected)
    _rename(placeholders, slots, {n.name for n in graph.nodes} - {n.name for n in placeholders})
    return tuple(slots), free, free_of


def _optimizer_tensors(capture):
    """Map the id of each tensor in optimizer state to (role, name, place)."""
    tensors = {}
    for o, (optimizer, _) in enumerate(capture.state.optimizers):
        for param, state in optimizer.state.items():
            for path, value in leaves(state):
                if isinstance(value, torch.Tensor):
                    tensors[id(memory_of(value))] = ("optim", *_of_state(capture.state, o, param, path))
    for o, owner, path, _, real in capture.new_state:
        tensors[id(real)] = (
            "optim",
            *(_of_group(o, owner, path) if type(owner) is int else _of_state(capture.state, o, owner, path)),
        )
    return tensors


def _of_state(state, optimizer, param, path):
    name = state.name_of(param)
    return ".".join((f"optimizer{optimizer}.{name}", *map(str, path))), ("optim", optimizer, name, *path)


def _of_group(optimizer, group, path):
    return ".".join((f"optimizer{optimizer}.group{group}", *map(str, path))), (
        "group",
        optimizer,
        group,
        *path,
    )


def _rename(placeholders, slots, used):
    """Give placeholders readable names that are not in `used` and are no Python keywords."""
    for node, slot in zip(placeholders, slots):
        base = "".join(c if c.isalnum() else "_" for c in slot.name)
        base = base if base and not base[0].isdigit() else "t_" + base
        base = base + "_" if _TAKEN.fullmatch(base) or keyword.iskeyword(base) else base
        name, k = base, 1
        while name in used:
            name, k = f"{base}_{k}", k + 1
        used.add(name)
        node.name = name
        node.target = name
