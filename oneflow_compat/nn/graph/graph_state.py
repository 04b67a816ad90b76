"""state_dict and load_state_dict of a graph: modules, optimizer slots, schedules, scaler.

Layout, OneFlow's first: {block: the module's state dict}, "block.a.b-slot" for each optimizer tensor (slots
under OneFlow's names), "System-Train-TrainStep"; then what OneFlow leaves out, as dicts of tensors
(value_records.py): "optimizer_0" (options of the groups, and state that is no tensor), "lr_scheduler_0",
"grad_scaler".
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Mapping

import torch

from ..._global.tensor import placed_as
from .value_records import NotRecordable, is_record, record, value_of

SLOTS = {  # torch's name of an optimizer slot: OneFlow's
    "momentum_buffer": "momentum",
    "exp_avg": "m",
    "exp_avg_sq": "v",
    "max_exp_avg_sq": "max_v",
    "square_avg": "mean_square",
    "grad_avg": "mean_gradient",
}
_TORCH_SLOTS = {v: k for k, v in SLOTS.items()}
STEP = "System-Train-TrainStep"


def _named_parameters(graph):
    names = {}
    for prefix, block in graph._blocks.items():
        for n, p in block._origin.named_parameters():
            names.setdefault(id(p), f"{prefix}.{n}")
    for o, (optimizer, _) in enumerate(graph._opts):
        for g, group in enumerate(optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                names.setdefault(id(p), f"optimizer_{o}.{g}.{i}")
    return names


def is_global(graph) -> bool:
    """Return True if the graph holds global tensors."""
    return any(
        getattr(t, "is_global", False)
        for block in graph._blocks.values()
        for t in block._origin.state_dict().values()
    )


def state_dict(graph, destination=None):
    out = OrderedDict() if destination is None else destination
    for name, block in graph._blocks.items():
        out[name] = block._origin.state_dict()
    names = _named_parameters(graph)
    for o, (optimizer, schedule) in enumerate(graph._opts):
        other_state: dict = {}
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            for slot, value in optimizer.state.get(p, {}).items():
                if isinstance(value, torch.Tensor):
                    out[f"{names[id(p)]}-{SLOTS.get(slot, slot)}"] = value.detach()
                elif value is not None:
                    other_state[f"{names[id(p)]}-{slot}"] = value
        options = [
            {k: v for k, v in group.items() if k != "params" and _plain(v)}
            for group in optimizer.param_groups
        ]
        out[f"optimizer_{o}"] = record(
            {"param_groups": options, "state": _recordable(graph, f"optimizer {o}", other_state)}
        )
        if schedule is not None:
            out[f"lr_scheduler_{o}"] = record(_recordable(graph, f"schedule {o}", schedule.state_dict()))
    if graph._grad_scaler is not None and hasattr(graph._grad_scaler, "state_dict"):
        out["grad_scaler"] = record(
            _recordable(graph, "the gradient scaler", graph._grad_scaler.state_dict())
        )
    if graph._opts:
        out[STEP] = torch.tensor([graph._steps], dtype=torch.int64)
    return out


def _recordable(graph, owner, values):
    """Return the values without those that no tensors can hold. Functions stay those of the receiver; a
    warning names other objects.
    """
    kept, left_out = {}, []
    for key, value in values.items():
        try:
            record(value)
            kept[key] = value
        except NotRecordable:
            if not callable(value):
                left_out.append(f"{key} ({type(value).__name__})")
    if left_out:
        warnings.warn(
            f"state_dict of graph {graph.name}: {', '.join(left_out)} of {owner} is left out, because only"
            " tensors, numbers, texts, lists and dicts are saved",
            stacklevel=4,
        )
    return kept


def _plain(value):
    return (
        value is None
        or isinstance(value, (bool, int, float, str, torch.Tensor))
        or isinstance(value, (tuple, list))
        and all(map(_plain, value))
    )


def load_state_dict(graph, state, strict=True):
    """Load a state dict. Everything is checked before anything is changed.

    State of another optimizer, or of one that the graph does not have, is ignored with a warning, unlike in
    OneFlow, which ignores it silently.
    """
    slots, rest, unknown, of_none = {}, {}, [], []
    by_name = _stepped(graph)
    for key, value in state.items():
        base, dash, slot = key.rpartition("-")
        if dash and base in by_name:
            slots.setdefault(base, {})[_TORCH_SLOTS.get(slot, slot)] = value
        elif (
            key in graph._blocks
            or key == "grad_scaler"
            or key.rpartition("_")[0] in ("optimizer", "lr_scheduler")
            and key.rpartition("_")[2].isdigit()
        ):
            if not isinstance(value, Mapping):
                raise TypeError(
                    f"load_state_dict of graph {graph.name}: {key} is a {type(value).__name__} {value!r}, no"
                    " state dict"
                )
            rest[key] = _value(graph, key, value)
        elif key == STEP:
            rest[key] = value
        else:
            (of_none if isinstance(value, torch.Tensor) else unknown).append(key)
    for o in range(len(graph._opts)):
        for key, value in rest.get(f"optimizer_{o}", {}).get("state", {}).items():
            base, _, slot = key.rpartition("-")
            if base in by_name:
                slots.setdefault(base, {})[slot] = value
    missing = [name for name in graph._blocks if name not in state]
    if strict and (missing or unknown):
        raise RuntimeError(
            f"load_state_dict of graph {graph.name}: missing {missing or 'nothing'}, unknown"
            f" {unknown or 'nothing'}; strict=False skips both"
        )
    if strict and of_none:
        _warn(
            graph,
            f"no optimizer of the graph has {', '.join(of_none[:3])}{' ...' if len(of_none) > 3 else ''};"
            " they are left aside",
        )
    options = {o: _options(graph, o, rest) for o in range(len(graph._opts))}
    for o in {o: None for o, _, _ in by_name.values()}:
        if lacks := _lacks(
            graph._opts[o][0],
            options[o],
            [(g, slots[n]) for n, (of, g, _) in by_name.items() if of == o and n in slots],
        ):
            _warn(
                graph,
                f"the state is of another optimizer than optimizer {o} ({type(graph._opts[o][0]).__name__}),"
                f" which needs {', '.join(sorted(lacks))}: this one begins anew, with its own options",
            )
            slots = {n: values for n, values in slots.items() if by_name[n][0] != o}
            options[o] = ()
    for name, values in slots.items():
        for slot, value in values.items():
            if (
                isinstance(value, torch.Tensor)
                and value.dim()
                and value.shape != by_name[name][2].shape
                and value.numel() != 1
            ):
                raise RuntimeError(
                    f"load_state_dict of graph {graph.name}: {name}-{slot} has the shape"
                    f" {tuple(value.shape)}, the parameter {tuple(by_name[name][2].shape)}"
                )
    for name, block in graph._blocks.items():
        if name in rest:
            _check_shapes(graph, name, block._origin, rest[name], strict)
    for name, block in graph._blocks.items():
        if name in rest:
            block._origin.load_state_dict(rest[name], strict=strict)
    steps = int(rest[STEP].reshape(-1)[0]) if STEP in rest else 0
    for name, values in slots.items():
        o, _, p = by_name[name]
        _put_slots(graph._opts[o][0].state[p], p, values, steps)
    for o, (optimizer, schedule) in enumerate(graph._opts):
        for group, saved in zip(optimizer.param_groups, options[o]):
            group.update(saved)
        if schedule is not None and f"lr_scheduler_{o}" in rest:
            schedule.load_state_dict(rest[f"lr_scheduler_{o}"])
    if "grad_scaler" in rest and hasattr(graph._grad_scaler, "load_state_dict"):
        graph._grad_scaler.load_state_dict(rest["grad_scaler"])
    object.__setattr__(graph, "_steps", steps)


def _value(graph, key, value):
    """Return a module's state dict unchanged; decode what state_dict() recorded otherwise, which must have
    one of the forms of the rest.
    """
    if key in graph._blocks:
        return value
    try:
        value = value_of(value) if is_record(value) else value
    except ValueError as error:
        raise ValueError(f"load_state_dict of graph {graph.name}: {key}: {error}") from None
    parts = [
        value,
        *([value.get("state", {})] if key.startswith("optimizer_") and isinstance(value, Mapping) else []),
    ]
    groups = (
        value.get("param_groups", []) if isinstance(value, Mapping) and key.startswith("optimizer_") else []
    )
    if (
        not all(isinstance(part, Mapping) for part in parts)
        or not isinstance(groups, (list, tuple))
        or not all(isinstance(group, Mapping) for group in groups)
    ):
        raise TypeError(
            f"load_state_dict of graph {graph.name}: {key} holds {str(value)[:80]}, no options that"
            " state_dict() gave"
        )
    if groups:
        value = {
            **value,
            "param_groups": [{k: v for k, v in group.items() if k != "params"} for group in groups],
        }
    return value


def _warn(graph, text):
    warnings.warn(f"load_state_dict of graph {graph.name}: {text}", stacklevel=4)


def _stepped(graph):
    """Return name -> (index of its optimizer, index of its group, the parameter)."""
    names = _named_parameters(graph)
    return {
        names[id(p)]: (o, g, p)
        for o, (optimizer, _) in enumerate(graph._opts)
        for g, group in enumerate(optimizer.param_groups)
        for p in group["params"]
    }


def _options(graph, o, rest):
    """Return the saved options of an optimizer's groups, or none if the number of groups differs."""
    options, groups = rest.get(f"optimizer_{o}", {}).get("param_groups", ()), graph._opts[o][0].param_groups
    if options and len(options) != len(groups):
        _warn(
            graph,
            f"the state is of {len(options)} parameter groups, optimizer {o} has {len(groups)}: their options"
            " stay as they are",
        )
        return ()
    return options


def _lacks(optimizer, options, given):
    """Return the slots that an optimizer begins with and that the state lacks. `given`: (index of the group,
    slots of one of its parameters).
    """
    needed = {
        g: _begins_with(optimizer, {**optimizer.param_groups[g], **(options[g] if options else {})})
        for g in {g for g, _ in given}
    }
    return {slot for g, values in given for slot in needed[g] - set(values) - {"step"}}


def _begins_with(optimizer, group):
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


def _put_slots(entry, p, values, steps):
    for slot, value in values.items():
        if isinstance(value, torch.Tensor):
            value = placed_as(value.detach().clone(), p)
            value = value if slot == "step" and value.device.type == "cpu" else value.to(p.device)
        entry[slot] = value
    if "exp_avg" in entry and "step" not in entry:
        entry["step"] = torch.tensor(float(steps))


def _check_shapes(graph, name, module, state, strict):
    have = module.state_dict()
    wrong = [
        k
        for k, v in state.items()
        if isinstance(have.get(k), torch.Tensor)
        and tuple(getattr(v, "shape", ("none",))) != tuple(have[k].shape)
    ]
    gone = sorted(set(have) ^ set(state)) if strict else []
    if wrong or gone:
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
            )
        )
