"""load_state_dict of a graph. What graph_state.py wrote is checked first, and then written."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ...._global.collectives import checking
from ...._global.marks import several
from ...._global.tensor import moved_to_placement_of
from .graph_state import SLOTS, STEP, named_parameters, torch_slot
from .value_records import is_record, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

    from ..graph_members import GraphMembers

    Stepped = tuple[int, int, torch.Tensor]  # (index of the optimizer, index of its group, the parameter)


@dataclass
class _SortedState:
    """The entries of a state dict by what they belong to."""

    modules: dict[str, Any] = field(default_factory=dict)  # block -> state dict of its module
    # parameter -> {torch's slot name: value}
    slots: dict[str, dict[str, Any]] = field(default_factory=dict)
    # "optimizer_0", "lr_scheduler_0", "grad_scaler" -> values
    records: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    of_no_optimizer: list[str] = field(default_factory=list)  # keys of tensors that belong to no optimizer
    unknown: list[str] = field(default_factory=list)


def on_all_ranks(graph: GraphMembers) -> AbstractContextManager[Any]:
    """Let every rank raise if the block raises on one of them, if the graph involves several ranks."""
    if several() and graph._engine.definition.involves_ranks():
        return checking(f"load_state_dict of graph {graph.name}")
    return nullcontext()


def checked_state(graph: GraphMembers, state: Mapping[str, Any], strict: bool = True) -> Callable[[], None]:
    """Check a state dict, and return the function that writes it. Nothing is changed before.

    State of another optimizer, or of one that the graph does not have, is ignored with a warning, unlike in
    OneFlow, which ignores it silently.
    """
    by_name = _stepped(graph)
    entries = _sorted_state(graph, state, by_name)
    missing = [name for name in graph._blocks if name not in state]
    if strict and (missing or entries.unknown):
        raise RuntimeError(
            f"load_state_dict of graph {graph.name}: missing {missing or 'nothing'}, unknown"
            f" {entries.unknown or 'nothing'}; strict=False skips both"
        )
    if strict and entries.of_no_optimizer:
        keys = entries.of_no_optimizer
        shown = ", ".join(keys[:3]) + (" ..." if len(keys) > 3 else "")
        _warn(graph, f"no optimizer of the graph has {shown}; they are left aside")
    options = _fitting_options(graph, entries, by_name)
    _check_slots(graph, entries.slots, by_name)
    for name, module_state in entries.modules.items():
        _check_shapes(graph, name, graph._blocks[name]._origin, module_state, strict)
    return lambda: _write_state(graph, entries, options, by_name, strict)


def _sorted_state(graph: GraphMembers, state: Mapping[str, Any], by_name: dict[str, Stepped]) -> _SortedState:
    """Sort the entries of a state dict; raise TypeError or ValueError for a damaged one."""
    entries = _SortedState()
    for key, value in state.items():
        parameter, dash, slot = str(key).rpartition("-")
        if dash and parameter in by_name:
            optimizer, _ = graph._opts[by_name[parameter][0]]
            entries.slots.setdefault(parameter, {})[torch_slot(optimizer, slot)] = _slot(graph, key, value)
        elif key in graph._blocks:
            entries.modules[key] = _mapping(graph, key, value)
        elif _is_record_key(str(key)):
            entries.records[key] = _recorded_value(graph, key, _mapping(graph, key, value))
        elif key == STEP:
            entries.steps = _step_count(graph, value)
        else:
            (entries.of_no_optimizer if isinstance(value, torch.Tensor) else entries.unknown).append(key)
    for o in range(len(graph._opts)):
        for key, value in entries.records.get(f"optimizer_{o}", {}).get("state", {}).items():
            parameter, _, slot = key.rpartition("-")
            if parameter in by_name:
                entries.slots.setdefault(parameter, {})[slot] = value
    return entries


def _is_record_key(key: str) -> bool:
    owner, _, index = key.rpartition("_")
    return key == "grad_scaler" or owner in ("optimizer", "lr_scheduler") and index.isdigit()


def _mapping(graph: GraphMembers, key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(
            f"load_state_dict of graph {graph.name}: {key} is a {type(value).__name__} {value!r}, no"
            " state dict"
        )
    return value


def _slot(graph: GraphMembers, key: str, value: Any) -> torch.Tensor | float:
    if not isinstance(value, (torch.Tensor, int, float)):
        raise TypeError(
            f"load_state_dict of graph {graph.name}: {key} is a {type(value).__name__}; it must be a"
            " tensor, as in what state_dict() returned"
        )
    return value


def _step_count(graph: GraphMembers, value: Any) -> int:
    try:
        return int(torch.as_tensor(value).reshape(-1)[0])
    except (TypeError, ValueError, IndexError, RuntimeError):
        raise TypeError(
            f"load_state_dict of graph {graph.name}: {STEP} is {str(value)[:80]!r}; it must be a tensor"
            " with the number of steps"
        ) from None


def _recorded_value(graph: GraphMembers, key: str, value: Mapping[str, Any]) -> Any:
    """Decode what state_dict() recorded; raise if it does not have the form that state_dict() gives."""
    try:
        value = value_of(value) if is_record(value) else value
    except ValueError as error:
        raise ValueError(f"load_state_dict of graph {graph.name}: {key}: {error}") from None
    is_optimizer = key.startswith("optimizer_") and isinstance(value, Mapping)
    groups = value.get("param_groups", []) if is_optimizer else []
    if (
        not isinstance(value, Mapping)
        or is_optimizer
        and not isinstance(value.get("state", {}), Mapping)
        or not isinstance(groups, (list, tuple))
        or not all(isinstance(group, Mapping) for group in groups)
    ):
        raise TypeError(
            f"load_state_dict of graph {graph.name}: {key} holds {str(value)[:80]}, no options that"
            " state_dict() gave"
        )
    if groups:
        options = [{k: v for k, v in group.items() if k != "params"} for group in groups]
        value = {**value, "param_groups": options}
    return value


def _fitting_options(
    graph: GraphMembers, entries: _SortedState, by_name: dict[str, Stepped]
) -> dict[int, Sequence[dict[str, Any]]]:
    """Return the saved options of each optimizer's groups.

    If the state is of another optimizer, its slots are dropped from `entries`, and its options are empty.
    """
    options = {o: _options(graph, o, entries.records) for o in range(len(graph._opts))}
    for o in {o: None for o, _, _ in by_name.values()}:
        optimizer = graph._opts[o][0]
        saved = [
            (group, entries.slots[name])
            for name, (owner, group, _) in by_name.items()
            if owner == o and name in entries.slots
        ]
        if missing := _missing_slots(optimizer, options[o], saved):
            _warn(
                graph,
                f"the state is of another optimizer than optimizer {o} ({type(optimizer).__name__}),"
                f" which needs {', '.join(sorted(missing))}: this one begins anew, with its own options",
            )
            entries.slots = {n: values for n, values in entries.slots.items() if by_name[n][0] != o}
            options[o] = ()
    return options


def _check_slots(graph: GraphMembers, slots: dict[str, dict[str, Any]], by_name: dict[str, Stepped]) -> None:
    for name, values in slots.items():
        parameter = by_name[name][2]
        for slot, value in values.items():
            if not isinstance(value, torch.Tensor):
                continue
            defect = _missing_values(value, parameter)
            if defect is None and value.dim() and value.numel() != 1 and value.shape != parameter.shape:
                defect = f"has the shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}"
            if defect is None and slot in SLOTS and _kind(value) != _kind(parameter):
                defect = f"has the dtype {value.dtype}, the parameter {parameter.dtype}"
            if defect is not None:
                raise RuntimeError(f"load_state_dict of graph {graph.name}: {name}-{slot} {defect}")


def _missing_values(value: torch.Tensor, target: torch.Tensor) -> str | None:
    """Say why a tensor cannot be copied to another one, or return None."""
    if value.is_meta and not target.is_meta:
        return "is on the device meta, so it has no values"
    if value.layout != target.layout:
        return f"has the layout {value.layout}, needed {target.layout}"
    return None


def _kind(tensor: torch.Tensor) -> tuple[bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex()


def _write_state(
    graph: GraphMembers,
    entries: _SortedState,
    options: dict[int, Sequence[dict[str, Any]]],
    by_name: dict[str, Stepped],
    strict: bool,
) -> None:
    """Write a checked state into modules, optimizers, schedules and scaler."""
    for name, module_state in entries.modules.items():
        graph._blocks[name]._origin.load_state_dict(module_state, strict=strict)
    for name, values in entries.slots.items():
        o, _, parameter = by_name[name]
        _put_slots(graph._opts[o][0].state[parameter], parameter, values, entries.steps)
    for o, (optimizer, schedule) in enumerate(graph._opts):
        for group, saved in zip(optimizer.param_groups, options[o]):
            group.update(saved)
        if schedule is not None and f"lr_scheduler_{o}" in entries.records:
            schedule.load_state_dict(entries.records[f"lr_scheduler_{o}"])
    if "grad_scaler" in entries.records and hasattr(graph._grad_scaler, "load_state_dict"):
        graph._grad_scaler.load_state_dict(entries.records["grad_scaler"])
    object.__setattr__(graph, "_steps", entries.steps)


def _warn(graph: GraphMembers, message: str) -> None:
    warnings.warn(f"load_state_dict of graph {graph.name}: {message}", stacklevel=5)


def _stepped(graph: GraphMembers) -> dict[str, Stepped]:
    """Return name -> (index of its optimizer, index of its group, the parameter)."""
    names = named_parameters(graph)
    return {
        names[id(p)]: (o, g, p)
        for o, (optimizer, _) in enumerate(graph._opts)
        for g, group in enumerate(optimizer.param_groups)
        for p in group["params"]
    }


def _options(graph: GraphMembers, o: int, records: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the saved options of an optimizer's groups, or none if the number of groups differs."""
    options, groups = (
        records.get(f"optimizer_{o}", {}).get("param_groups", ()),
        graph._opts[o][0].param_groups,
    )
    if options and len(options) != len(groups):
        _warn(
            graph,
            f"the state is of {len(options)} parameter groups, optimizer {o} has {len(groups)}: their options"
            " stay as they are",
        )
        return ()
    return options


def _missing_slots(
    optimizer: Optimizer, options: Sequence[dict[str, Any]], saved: list[tuple[int, dict[str, Any]]]
) -> set[str]:
    """Return the slots that an optimizer begins with and that the state lacks.

    `saved` lists (index of the group, slots of one of its parameters).
    """
    needed = {
        g: _begins_with(optimizer, {**optimizer.param_groups[g], **(options[g] if options else {})})
        for g in {g for g, _ in saved}
    }
    return {slot for g, values in saved for slot in needed[g] - set(values) - {"step"}}


def _begins_with(optimizer: Optimizer, group: dict[str, Any]) -> set[str]:
    """Return the slots that the first step of a torch or OneFlow optimizer creates.

    The step is tried on a parameter with one element. The result is empty if the slots cannot be determined.
    """
    if type(optimizer).__module__.partition(".")[0] not in ("torch", __name__.partition(".")[0]):
        return set()
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    twin = object.__new__(type(optimizer))
    twin.__dict__.update(
        {k: OrderedDict() if k.endswith("_hooks") else v for k, v in vars(optimizer).items() if k != "step"}
    )
    twin.state, twin.param_groups = defaultdict(dict), [{**group, "params": [parameter]}]
    try:
        twin.step()
    except Exception:
        return set()
    return {k for k, v in twin.state[parameter].items() if isinstance(v, torch.Tensor)}


def _put_slots(entry: dict[str, Any], p: torch.Tensor, values: dict[str, Any], steps: int) -> None:
    for slot, value in values.items():
        if isinstance(value, torch.Tensor):
            value = moved_to_placement_of(value.detach().clone(), p, slot)
            value = value if slot == "step" and value.device.type == "cpu" else value.to(p.device)
        entry[slot] = value
    if "exp_avg" in entry and "step" not in entry:
        entry["step"] = torch.tensor(float(steps))


def _check_shapes(
    graph: GraphMembers, name: str, module: torch.nn.Module, state: Mapping[str, Any], strict: bool
) -> None:
    """Raise RuntimeError if the state of a module does not fit it. `strict`: the names must agree, too."""
    have = module.state_dict()
    wrong = [
        k
        for k, v in state.items()
        if isinstance(have.get(k), torch.Tensor)
        and tuple(getattr(v, "shape", ("none",))) != tuple(have[k].shape)
    ]
    gone = sorted(map(str, set(have) ^ set(state))) if strict else []
    without_values = [
        f"{k} {defect}"
        for k, v in state.items()
        if isinstance(v, torch.Tensor)
        and isinstance(have.get(k), torch.Tensor)
        and (defect := _missing_values(v, have[k]))
    ]
    if wrong or gone or without_values:
        raise RuntimeError(
            f"load_state_dict of graph {graph.name}: module {name!r} does not fit: "
            + "; ".join(
                [
                    f"shape of {k} is"
                    f" {tuple(state[k].shape) if hasattr(state[k], 'shape') else type(state[k]).__name__},"
                    f" needed {tuple(have[k].shape)}"
                    for k in wrong
                ]
                + [f"{k} is on one side only" for k in gone]
                + without_values
            )
        )
