"""Optimizers from the oldest configuration, `function_config.train.model_update_conf`.

Example: `model_update_conf(dict(momentum_conf={"beta": 0.9}))`.
"""

from typing import Any

import torch

from .._jobs.context import require_trace
from . import grad_clipping
from ._rules import LAMB, LARS, SGD, SGDW, RMSProp
from ._schedulers import from_conf
from .up_to_0_4 import Adam, AdamW, LazyAdam  # the versions that programs with a conf were written for

_COMMON = ("learning_rate_decay", "warmup_conf", "clip_conf", "weight_decay_conf")


def _momentum(schedule: Any, own: Any, decay: Any, common: Any, momentum: float) -> Any:
    if decay:
        return SGDW(schedule, momentum=momentum, **decay, **common)
    return SGD(schedule, momentum=momentum, **common)


# rule of a conf -> optimizer of (schedule, options of the rule, weight decay, other options)
_RULES = {
    "naive_conf": lambda schedule, own, decay, common: _momentum(schedule, own, decay, common, 0.0),
    "momentum_conf": lambda schedule, own, decay, common: _momentum(
        schedule, own, decay, common, own.get("beta", 0.9)
    ),
    "adam_conf": lambda schedule, own, decay, common: (
        AdamW(schedule, **own, **decay, **common) if decay else Adam(schedule, **own, **common)
    ),
    "lazy_adam_conf": lambda schedule, own, decay, common: LazyAdam(schedule, **own, **common),
    "rmsprop_conf": lambda schedule, own, decay, common: RMSProp(schedule, **own, **common),
    "lars_conf": lambda schedule, own, decay, common: LARS(schedule, **own, **decay, **common),
    "lamb_conf": lambda schedule, own, decay, common: LAMB(schedule, **own, **decay, **common),
}


def optimizer(conf: dict[str, Any], lr: float, loss_scale: Any = None) -> Any:
    """Return the optimizer of a conf that names one of the rules above."""
    rules = [k for k in conf if k not in _COMMON]
    if len(rules) != 1:
        raise ValueError(f"model_update_conf must name one rule, found {sorted(conf)}")
    [rule] = rules
    if rule not in _RULES:
        raise ValueError(f"model_update_conf: unknown rule {rule!r}")
    schedule = from_conf(lr, conf.get("learning_rate_decay"), conf.get("warmup_conf"))
    common = {"loss_scale_factor": loss_scale}
    clip = conf.get("clip_conf")
    if clip:
        common["grad_clipping"] = grad_clipping.by_global_norm(clip["clip_by_global_norm"]["clip_norm"])
    return _RULES[rule](schedule, dict(conf[rule] or {}), _weight_decay(conf), common)


def _weight_decay(conf: dict[str, Any]) -> dict[str, Any]:
    decay = conf.get("weight_decay_conf")
    if not decay:
        return {}
    options = {"weight_decay": decay["weight_decay_rate"]}
    for key in ("includes", "excludes"):
        if key in decay:
            options[f"weight_decay_{key}"] = list(decay[key]["pattern"])
    return options


def add_loss(loss: torch.Tensor) -> None:
    """flow.losses.add_loss: add a loss, whose optimizer comes from `function_config.train.*`."""
    require_trace("flow.losses.add_loss").losses.append(loss)
