"""Optimizers from the oldest configuration, `function_config.train.model_update_conf`.

Example: `model_update_conf(dict(momentum_conf={"beta": 0.9}))`.
"""

from __future__ import annotations

from . import grad_clipping
from ._rules import LAMB, LARS, SGD, SGDW, Adam, AdamW, LazyAdam, RMSProp
from ._schedulers import from_conf

_COMMON = ("learning_rate_decay", "warmup_conf", "clip_conf", "weight_decay_conf")


def optimizer(conf: dict, lr: float, loss_scale=None):
    """Return the optimizer of a conf.

    The conf has one of naive_conf, momentum_conf, adam_conf, lazy_adam_conf, rmsprop_conf, lars_conf and
    lamb_conf.
    """
    kinds = [k for k in conf if k not in _COMMON]
    if len(kinds) != 1:
        raise ValueError(f"model_update_conf must name one rule, found {sorted(conf)}")
    rule, own = kinds[0], dict(conf[kinds[0]] or {})
    schedule = from_conf(lr, conf.get("learning_rate_decay"), conf.get("warmup_conf"))
    common = {"loss_scale_factor": loss_scale}
    clip = conf.get("clip_conf")
    if clip:
        common["grad_clipping"] = grad_clipping.by_global_norm(clip["clip_by_global_norm"]["clip_norm"])
    decay = conf.get("weight_decay_conf") or {}
    rate = {}
    if decay:
        rate = {"weight_decay": decay["weight_decay_rate"]}
        for key in ("includes", "excludes"):
            if key in decay:
                rate[f"weight_decay_{key}"] = list(decay[key]["pattern"])
    if rule in ("naive_conf", "momentum_conf"):
        momentum = own.get("beta", 0.9) if rule == "momentum_conf" else 0.0
        return (
            SGDW(schedule, momentum=momentum, **rate, **common)
            if rate
            else SGD(schedule, momentum=momentum, **common)
        )
    if rule == "adam_conf":
        return AdamW(schedule, **own, **rate, **common) if rate else Adam(schedule, **own, **common)
    if rule == "lazy_adam_conf":
        return LazyAdam(schedule, **own, **common)
    if rule == "rmsprop_conf":
        return RMSProp(schedule, **own, **common)
    if rule == "lars_conf":
        return LARS(schedule, **own, **rate, **common)
    if rule == "lamb_conf":
        return LAMB(schedule, **own, **rate, **common)
    raise ValueError(f"model_update_conf: unknown rule {rule!r}")
