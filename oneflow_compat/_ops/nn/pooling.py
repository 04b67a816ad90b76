"""Pooling: OneFlow's order of the last arguments, `divisor_override=0` for none, and `data_format`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from .._signature import need_tensors
from .convolution import is_channels_last, to_first, to_last

__all__ = [
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool2d",
]


def _pooled(
    function: Callable[..., Any],
    spatial: int,
    data_format: str | None,
    input: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """function(input, ...) of torch's on either layout."""
    need_tensors(function.__name__, input=input)
    if not is_channels_last(data_format):
        return function(input, *args, **kwargs)
    out = function(to_first(input, spatial), *args, **kwargs)
    return tuple(to_last(t, spatial) for t in out) if isinstance(out, tuple) else to_last(out, spatial)


def max_pool1d(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    return_indices: bool = False,
    ceil_mode: bool = False,
    data_format: str | None = "channels_first",
) -> torch.Tensor | Any:
    """Maximum of windows; differs from torch's: `return_indices` comes before `ceil_mode`, `data_format`."""
    if data_format == "channels_first":
        return F.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _pooled(
        F.max_pool1d, 1, data_format, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool2d(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    return_indices: bool = False,
    ceil_mode: bool = False,
    data_format: str | None = "channels_first",
) -> torch.Tensor | Any:
    """Maximum of windows; differs from torch's: `return_indices` comes before `ceil_mode`, `data_format`."""
    if data_format == "channels_first":
        return F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _pooled(
        F.max_pool2d, 2, data_format, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool3d(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    return_indices: bool = False,
    ceil_mode: bool = False,
    data_format: str | None = "channels_first",
) -> torch.Tensor | Any:
    """Maximum of windows; differs from torch's: `return_indices` comes before `ceil_mode`, `data_format`."""
    if data_format == "channels_first":
        return F.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _pooled(
        F.max_pool3d, 3, data_format, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def avg_pool1d(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = 0,
    data_format: str | None = "channels_first",
) -> torch.Tensor:
    """Mean of windows; differs from torch's: `divisor_override` (0 and None: the window's size),
    `data_format`.
    """
    if not divisor_override:
        return _pooled(
            F.avg_pool1d,
            1,
            data_format,
            input,
            kernel_size,
            stride if stride is not None else kernel_size,
            padding,
            ceil_mode,
            count_include_pad,
        )

    def single_size(value: Any) -> int:
        return value[0] if isinstance(value, (tuple, list)) else value

    def pool(x: torch.Tensor) -> torch.Tensor:
        kernel = single_size(kernel_size)
        step = kernel if stride is None else single_size(stride)
        return F.avg_pool2d(
            x.unsqueeze(-2),
            (1, kernel),
            (1, step),
            (0, single_size(padding)),
            ceil_mode,
            count_include_pad,
            divisor_override,
        ).squeeze(-2)

    return _pooled(pool, 1, data_format, input)


def avg_pool2d(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = 0,
    data_format: str | None = "channels_first",
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean of windows; differs from torch's: `divisor_override=0` means none, `data_format`."""
    args = input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override or None
    return _pooled(F.avg_pool2d, 2, data_format, *args, **({} if out is None else {"out": out}))


def avg_pool3d(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = 0,
    data_format: str | None = "channels_first",
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean of windows; differs from torch's: `divisor_override=0` means none, `data_format`."""
    args = input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override or None
    return _pooled(F.avg_pool3d, 3, data_format, *args, **({} if out is None else {"out": out}))


def _each(output_size: int | Sequence[int | None], spatial: int) -> int | Sequence[int | None]:
    return (
        output_size * spatial
        if isinstance(output_size, (tuple, list)) and len(output_size) == 1
        else output_size
    )


def adaptive_avg_pool1d(
    input: torch.Tensor, output_size: int | Sequence[int | None], data_format: str | None = "channels_first"
) -> torch.Tensor:
    """Mean pooling to a given size; differs from torch's: `data_format`."""
    return _pooled(F.adaptive_avg_pool1d, 1, data_format, input, output_size)


def adaptive_avg_pool2d(
    input: torch.Tensor, output_size: int | Sequence[int | None], data_format: str | None = "channels_first"
) -> torch.Tensor:
    """Mean pooling to a given size; differs from torch's: `data_format`, a list of one size."""
    return _pooled(F.adaptive_avg_pool2d, 2, data_format, input, _each(output_size, 2))


def adaptive_avg_pool3d(
    input: torch.Tensor, output_size: int | Sequence[int | None], data_format: str | None = "channels_first"
) -> torch.Tensor:
    """Mean pooling to a given size; differs from torch's: `data_format`, a list of one size."""
    return _pooled(F.adaptive_avg_pool3d, 3, data_format, input, _each(output_size, 3))


def adaptive_max_pool2d(
    input: torch.Tensor,
    output_size: int | Sequence[int | None],
    return_indices: bool = False,
    data_format: str | None = "channels_first",
) -> torch.Tensor | Any:
    """Maximum pooling to a given size; differs from torch's: `data_format`, a list of one size."""
    return _pooled(
        F.adaptive_max_pool2d, 2, data_format, input, _each(output_size, 2), return_indices=return_indices
    )
