"""Optimizer checkpoints in OneFlow's layout.

OneFlow: {"state": {"step": n, 0: {slot: tensor}}, "param_groups": [{"_options": {...},
"_enable_clip_grad": bool, "params": [0]}]}; torch keeps the options in the group itself and a step
per parameter. Slot names differ for SGD and Adadelta (`_renames` of the class).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

# OneFlow's Adam family keeps them among the options
STORED_PER_STEP = (
    "bias_correction1",
    "bias_correction2",
)


def is_oneflow(state_dict: Mapping[str, Any]) -> bool:
    groups: Sequence[Mapping[str, Any]] = state_dict.get("param_groups") or [{}]
    return "_options" in groups[0]


def from_oneflow(
    state_dict: Mapping[str, Any],
    renames: Mapping[str, str],
    current_groups: Sequence[Mapping[str, Any]],
    counts_steps: bool = True,
) -> dict[str, Any]:
    """OneFlow's layout as torch's; options OneFlow does not know keep the optimizer's present value."""
    if len(state_dict["param_groups"]) != len(current_groups):
        raise ValueError(
            f"the checkpoint has {len(state_dict['param_groups'])} parameter groups, the optimizer"
            f" {len(current_groups)}"
        )
    back = {theirs: ours for ours, theirs in renames.items()}
    step = float(state_dict["state"].get("step", 0))
    state = {}
    for index, slots in state_dict["state"].items():
        if index == "step" or not slots:
            continue
        state[index] = {back.get(name, name): _tensor(value) for name, value in slots.items()}
        if counts_steps:
            state[index]["step"] = torch.tensor(step, dtype=torch.float32)
    groups = []
    for saved, current in zip(state_dict["param_groups"], current_groups):
        group = {key: value for key, value in current.items() if key != "params"}
        for key, value in saved["_options"].items():
            if key == "fused":
                value = value or None
            if key not in STORED_PER_STEP:
                group[key] = value
        group["params"] = list(saved["params"])
        groups.append(group)
    return {"state": state, "param_groups": groups}


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def to_oneflow(
    state_dict: Mapping[str, Any], renames: Mapping[str, str], option_names: Sequence[str]
) -> dict[str, Any]:
    """torch's layout as OneFlow's, for real OneFlow to read."""
    steps = [
        int(slots["step"])
        for slots in state_dict["state"].values()
        if isinstance(slots, dict) and "step" in slots
    ]
    step = max(steps, default=0)
    state: dict[str, Any] = {"step": step}
    groups = []
    for group in state_dict["param_groups"]:
        for index in group["params"]:
            slots = state_dict["state"].get(index, {})
            state[index] = {renames.get(k, k): v for k, v in slots.items() if k != "step" and v is not None}
        options = {name: _option(name, group, step) for name in option_names}
        for name in ("clip_grad_max_norm", "clip_grad_norm_type", "initial_lr"):
            if name in group:
                options[name] = group[name]
        clip = all(group.get(name) is not None for name in ("clip_grad_max_norm", "clip_grad_norm_type"))
        groups.append({"_options": options, "_enable_clip_grad": clip, "params": list(group["params"])})
    return {"state": state, "param_groups": groups}


def _option(name: str, group: Mapping[str, Any], step: int) -> Any:
    """Return the option `name` of a parameter group as OneFlow stores it after `step` steps."""
    if name in STORED_PER_STEP and "betas" in group:
        corrects = step and group.get("do_bias_correction", True)
        return 1.0 - group["betas"][name == STORED_PER_STEP[1]] ** step if corrects else 1.0
    return bool(group.get(name)) if name == "fused" else group.get(name, 0.0)
