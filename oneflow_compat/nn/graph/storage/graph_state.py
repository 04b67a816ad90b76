"""state_dict and load_state_dict of a graph: modules, optimizer slots, schedules, scaler.

Layout, OneFlow's first: {block: the module's state dict}, "block.a.b-slot" for each optimizer tensor (slots
under OneFlow's names), "System-Train-TrainStep"; then what OneFlow leaves out, as dicts of tensors
(value_records.py): "optimizer_0" (options of the groups, and state that is no tensor), "lr_scheduler_0",
"grad_scaler".
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from .value_records import NotRecordable, record

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..graph_members import GraphMembers


SLOTS = {  # torch's name of an optimizer slot: OneFlow's
    "momentum_buffer": "momentum",
    "exp_avg": "m",
    "exp_avg_sq": "v",
    "max_exp_avg_sq": "max_v",
    "square_avg": "mean_square",
    "grad_avg": "mean_gradient",
}
SLOTS_OF_OPTIMIZERS = {"Adadelta": {"square_avg": "square_avgs", "acc_delta": "acc_deltas"}}
STEP = "System-Train-TrainStep"


def _slot_names(optimizer: Optimizer) -> dict[str, str]:
    """Return OneFlow's names of an optimizer's slots by torch's names."""
    return {**SLOTS, **SLOTS_OF_OPTIMIZERS.get(type(optimizer).__name__, {})}


def torch_slot(optimizer: Optimizer, slot: str) -> str:
    """Return torch's name of a slot; OneFlow's names for other optimizers are understood too."""
    return {v: k for names in (SLOTS, _slot_names(optimizer)) for k, v in names.items()}.get(slot, slot)


def named_parameters(graph: GraphMembers) -> dict[int, str]:
    names: dict[int, str] = {}
    for prefix, block in graph._blocks.items():
        for n, p in block._origin.named_parameters():
            names.setdefault(id(p), f"{prefix}.{n}")
    for o, (optimizer, _) in enumerate(graph._opts):
        for g, group in enumerate(optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                names.setdefault(id(p), f"optimizer_{o}.{g}.{i}")
    return names


def is_global(graph: GraphMembers) -> bool:
    """Return True if the graph holds global tensors."""
    return any(
        getattr(t, "is_global", False)
        for block in graph._blocks.values()
        for t in block._origin.state_dict().values()
    )


def state_dict(
    graph: GraphMembers, destination: OrderedDict[str, Any] | None = None
) -> OrderedDict[str, Any]:
    """Return the state of the graph's modules, optimizers, schedules and scaler."""
    out = OrderedDict() if destination is None else destination
    for name, block in graph._blocks.items():
        out[name] = block._origin.state_dict()
    names = named_parameters(graph)
    for o, (optimizer, schedule) in enumerate(graph._opts):
        tensors, values = _optimizer_state(optimizer, names)
        out.update(tensors)
        options = [
            {k: v for k, v in group.items() if k != "params" and _plain(v)}
            for group in optimizer.param_groups
        ]
        out[f"optimizer_{o}"] = record(
            {"param_groups": options, "state": _recordable(graph, f"optimizer {o}", values)}
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


def _optimizer_state(
    optimizer: Optimizer, names: dict[int, str]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the optimizer's state as (tensors under OneFlow's slot names, other values under torch's)."""
    tensors, values, slot_names = {}, {}, _slot_names(optimizer)
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        for slot, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                tensors[f"{names[id(parameter)]}-{slot_names.get(slot, slot)}"] = value.detach()
            elif value is not None:
                values[f"{names[id(parameter)]}-{slot}"] = value
    return tensors, values


def _recordable(graph: GraphMembers, owner: str, values: dict[str, Any]) -> dict[str, Any]:
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


def _plain(value: object) -> bool:
    return (
        value is None
        or isinstance(value, (bool, int, float, str, torch.Tensor))
        or isinstance(value, (tuple, list))
        and all(map(_plain, value))
    )
