"""Initializers of variables: `flow.X_initializer(...)` gives a description, `fill` carries it out."""

from __future__ import annotations

import math
from typing import Any

import torch


class Initializer:
    """How a variable is filled: a rule and its parameters. `seed` makes the values repeatable."""

    def __init__(self, rule: str, seed: int | None = None, **parameters: Any) -> None:
        self.rule, self.seed, self.parameters = rule, seed, parameters

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.parameters.items())
        return f"Initializer({self.rule!r}, {inside})"


def constant_initializer(value: float = 0, dtype: torch.dtype | None = None) -> Initializer:
    """All elements are `value`."""
    return Initializer("constant", value=value)


def zeros_initializer(dtype: torch.dtype | None = None) -> Initializer:
    return constant_initializer(0, dtype)


def ones_initializer(dtype: torch.dtype | None = None) -> Initializer:
    return constant_initializer(1, dtype)


def empty_initializer(dtype: torch.dtype | None = None) -> Any:
    """The values do not matter (they are left as the memory had them)."""
    return Initializer("empty")


def random_uniform_initializer(minval: int = 0, maxval: int = 1, dtype: torch.dtype | None = None) -> Any:
    """Uniform in [minval, maxval); an integer variable gets integers in that range."""
    return Initializer("random_uniform", minval=minval, maxval=maxval)


def random_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: int | None = None, dtype: torch.dtype | None = None
) -> Initializer:
    return Initializer("random_normal", seed=seed, mean=mean, stddev=stddev)


def truncated_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> Initializer:
    """Normal; values beyond two standard deviations are sampled again."""
    return Initializer("truncated_normal", mean=mean, stddev=stddev)


def truncated_normal(stddev: float = 1.0) -> Initializer:
    return truncated_normal_initializer(0.0, stddev)


def variance_scaling_initializer(
    scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal", data_format: str = ""
) -> Any:
    """Spread sqrt(scale / n), where n is the fan of `mode` in the layout `data_format`.

    `mode` is fan_in, fan_out or fan_avg.
    """
    _one_of("mode", mode, ("fan_in", "fan_out", "fan_avg"))
    _one_of("distribution", distribution, ("truncated_normal", "random_normal", "random_uniform"))
    return Initializer(
        "variance_scaling", scale=scale, mode=mode, distribution=distribution, data_format=data_format
    )


def glorot_uniform_initializer(data_format: str = "") -> Any:
    return variance_scaling_initializer(1.0, "fan_avg", "random_uniform", data_format)


def glorot_normal_initializer(data_format: str = "") -> Any:
    return variance_scaling_initializer(1.0, "fan_avg", "random_normal", data_format)


xavier_uniform_initializer = glorot_uniform_initializer
xavier_normal_initializer = glorot_normal_initializer


def kaiming_initializer(
    shape: Any,
    distribution: str = "random_normal",
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    negative_slope: float = 0.0,
    data_format: str = "NCHW",
) -> Any:
    """He's initializer for a variable of `shape`.

    The nonlinearity is one of linear, sigmoid, tanh, relu, leaky_relu.
    """
    _one_of("distribution", distribution, ("random_normal", "random_uniform"))
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5.0 / 3,
        "relu": math.sqrt(2),
        "leaky_relu": math.sqrt(2 / (1 + negative_slope**2)),
    }
    _one_of("nonlinearity", nonlinearity, tuple(gains))
    std = gains[nonlinearity] / math.sqrt(fan(shape, mode, data_format))
    if distribution == "random_normal":
        return random_normal_initializer(0.0, std)
    return random_uniform_initializer(-math.sqrt(3) * std, math.sqrt(3) * std)


def _one_of(what: Any, value: Any, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(allowed)}, found {value!r}")


def fan(shape: Any, mode: Any, data_format: str = "") -> float:
    """Elements feeding one output (fan_in), fed by one input (fan_out), or their mean.

    The shape is (out, in, ...) or (out, ..., in).
    """
    shape = tuple(shape)
    count = math.prod
    last = data_format in ("NHWC", "NWC", "NDHWC", "channels_last")
    fan_in = count(shape[1:])
    fan_out = shape[0] * (count(shape[1:-1]) if last else count(shape[2:])) if shape else 1
    return {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]


def fill(tensor: torch.Tensor, initializer: Initializer | float, seed: int | None = None) -> Any:
    """Fill `tensor` in place.

    `initializer`: an Initializer, a dict {"constant_conf": {"value": 0}}, or a number.
    """
    if isinstance(initializer, (int, float)):
        initializer = constant_initializer(initializer)
    if isinstance(initializer, dict):
        ((rule, parameters),) = initializer.items()
        rule, parameters = rule.removesuffix("_conf").replace("_int", ""), dict(parameters)
        parameters = {
            {"min": "minval", "max": "maxval", "std": "stddev", "variance_norm": "mode"}.get(k, k): v
            for k, v in parameters.items()
        }
        initializer = Initializer(rule, **parameters)
    seed = initializer.seed if initializer.seed is not None else seed
    if seed is None and tensor.device.type == "cpu":
        return _fill(tensor, initializer, None)
    # Sample on the CPU, so that a seed gives the same values on every device.
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    filled = torch.empty(tensor.shape, dtype=tensor.dtype)
    _fill(filled, initializer, generator)
    tensor.copy_(filled)


def _fill(t: torch.Tensor, initializer: Initializer, generator: Any) -> None:
    rule, p = initializer.rule, initializer.parameters
    if rule == "constant":
        t.fill_(p.get("value", 0))
    elif rule == "random_uniform":
        low, high = p.get("minval", 0), p.get("maxval", 1)
        (
            t.uniform_(low, high, generator=generator)
            if t.is_floating_point()
            else t.random_(int(low), int(high), generator=generator)
        )
    elif rule == "random_normal":
        t.normal_(p.get("mean", 0.0), p.get("stddev", 1.0), generator=generator)
    elif rule == "truncated_normal":
        _truncated(t, p.get("mean", 0.0), p.get("stddev", 1.0), generator)
    elif rule == "variance_scaling":
        std = math.sqrt(p.get("scale", 1.0) / fan(t.shape, p.get("mode", "fan_in"), p.get("data_format", "")))
        how = p.get("distribution", "truncated_normal")
        if how == "random_uniform":
            t.uniform_(-math.sqrt(3) * std, math.sqrt(3) * std, generator=generator)
        elif how == "random_normal":
            t.normal_(0.0, std, generator=generator)
        else:
            _truncated(t, 0.0, std / 0.87962566103423978, generator)
    elif rule != "empty":
        raise ValueError(f"unknown initializer {rule!r}")


def _truncated(t: torch.Tensor, mean: float, std: float, generator: Any) -> None:
    torch.nn.init.trunc_normal_(t, mean, std, mean - 2 * std, mean + 2 * std, generator=generator)
