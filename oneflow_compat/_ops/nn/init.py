"""Initialisers whose fans depend on `data_format`, and OneFlow's helpers for fans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn import init

__all__ = [
    "kaiming_normal_",
    "kaiming_uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "calc_fan",
    "get_data_format",
    "CalcGain",
]


def get_data_format(data_format: str) -> Literal["channels_first", "channels_last", ""]:
    """ "channels_first" of "NC...", "channels_last" of "N...C", "" of "".

    ValueError for any other string.
    """
    if data_format == "":
        return ""
    if data_format.startswith("NC"):
        return "channels_first"
    if data_format.startswith("N") and data_format.endswith("C"):
        return "channels_last"
    raise ValueError(f"data_format must be 'NC...', 'N...C' or '', found {data_format!r}")


def calc_fan(shape: Sequence[int], mode: str, data_format: str) -> float:
    """fan_in, fan_out or fan_sum (float) of a weight of this shape; `data_format` as `get_data_format` gives
    it.

    A channels-last weight is (out, kernel..., in).

    ValueError for a shape of fewer than two dimensions, and for an unknown mode or data_format.
    """
    if len(shape) < 2:
        raise ValueError(f"the fans of a weight need two dimensions or more, found shape {tuple(shape)}")
    if len(shape) > 2 and data_format not in ("channels_first", "channels_last"):
        raise ValueError(f"data_format must be 'channels_first' or 'channels_last', found {data_format!r}")
    last = len(shape) > 2 and data_format == "channels_last"
    fan_in = float(math.prod(shape[1:]))
    fan_out = float(shape[0]) * math.prod(shape[1:-1] if last else shape[2:])
    if mode not in ("fan_in", "fan_out", "fan_sum"):
        raise ValueError(f"mode must be 'fan_in', 'fan_out' or 'fan_sum', found {mode!r}")
    return {"fan_in": fan_in, "fan_out": fan_out, "fan_sum": fan_in + fan_out}[mode]


def kaiming_normal_(
    tensor: torch.Tensor,
    a: float = 0,
    mode: Literal["fan_in", "fan_out", "fan_sum"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """He's normal initialisation; differs from torch's: `data_format`."""
    if get_data_format(data_format) != "channels_last":
        return init.kaiming_normal_(tensor, a, mode, nonlinearity, generator)
    std = init.calculate_gain(nonlinearity, a) / math.sqrt(calc_fan(tensor.shape, mode, "channels_last"))
    return init.normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: torch.Tensor,
    a: float = 0,
    mode: Literal["fan_in", "fan_out", "fan_sum"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """He's uniform initialisation; differs from torch's: `data_format`."""
    if get_data_format(data_format) != "channels_last":
        return init.kaiming_uniform_(tensor, a, mode, nonlinearity, generator)
    bound = (
        math.sqrt(3.0)
        * init.calculate_gain(nonlinearity, a)
        / math.sqrt(calc_fan(tensor.shape, mode, "channels_last"))
    )
    return init.uniform_(tensor, -bound, bound, generator)


def xavier_normal_(
    tensor: torch.Tensor,
    gain: float = 1.0,
    generator: torch.Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """Glorot's normal initialisation; differs from torch's: `data_format`."""
    if get_data_format(data_format) != "channels_last":
        return init.xavier_normal_(tensor, gain, generator)
    return init.normal_(
        tensor, 0.0, gain * math.sqrt(2.0 / calc_fan(tensor.shape, "fan_sum", "channels_last")), generator
    )


def xavier_uniform_(
    tensor: torch.Tensor,
    gain: float = 1.0,
    generator: torch.Generator | None = None,
    *,
    data_format: str = "NCHW",
) -> torch.Tensor:
    """Glorot's uniform initialisation; differs from torch's: `data_format`."""
    if get_data_format(data_format) != "channels_last":
        return init.xavier_uniform_(tensor, gain, generator)
    bound = gain * math.sqrt(6.0 / calc_fan(tensor.shape, "fan_sum", "channels_last"))
    return init.uniform_(tensor, -bound, bound, generator)


def CalcGain(nonlinearity: str, param: float | None = None) -> float:
    """Old name of calculate_gain."""
    return init.calculate_gain(nonlinearity, param)
