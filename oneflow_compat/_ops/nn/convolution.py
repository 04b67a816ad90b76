"""Convolution and sliding windows on channels-last tensors.

OneFlow's "channels_last" is the order of the dimensions: (N, L..., C) for the data and, for the
convolutions, (out, kernel..., in) for the weight. torch always has (N, C, L...) and (out, in, kernel...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch.nn import functional as F

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "fold",
    "unfold",
    "is_channels_last",
    "to_first",
    "to_last",
]


def is_channels_last(order: str | None, name: str = "data_format") -> bool:
    """Whether the layout is "channels_last". None means "channels_first"."""
    if order is None or order == "channels_first":
        return False
    if order == "channels_last":
        return True
    raise ValueError(f"{name} must be 'channels_first' or 'channels_last', found {order!r}")


def to_first(tensor: torch.Tensor, spatial: int) -> torch.Tensor:
    """View (N, L..., C) or (L..., C) with `spatial` dimensions L as (N, C, L...) or (C, L...)."""
    return tensor.movedim(-1, tensor.dim() - spatial - 1)


def to_last(tensor: torch.Tensor, spatial: int) -> torch.Tensor:
    """View (N, C, L...) as (N, L..., C)."""
    return tensor.movedim(tensor.dim() - spatial - 1, -1)


def conv1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Literal["valid", "same"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    channel_pos: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """1-d convolution; differs from torch's: `channel_pos`."""
    if not is_channels_last(channel_pos, "channel_pos"):
        return F.conv1d(input, weight, bias, stride, padding, dilation, groups)
    return to_last(
        F.conv1d(to_first(input, 1), to_first(weight, 1), bias, stride, padding, dilation, groups), 1
    )


def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Literal["valid", "same"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    channel_pos: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """2-d convolution; differs from torch's: `channel_pos`."""
    if not is_channels_last(channel_pos, "channel_pos"):
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return to_last(
        F.conv2d(to_first(input, 2), to_first(weight, 2), bias, stride, padding, dilation, groups), 2
    )


def conv3d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Literal["valid", "same"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    channel_pos: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """3-d convolution; differs from torch's: `channel_pos`."""
    if not is_channels_last(channel_pos, "channel_pos"):
        return F.conv3d(input, weight, bias, stride, padding, dilation, groups)
    return to_last(
        F.conv3d(to_first(input, 3), to_first(weight, 3), bias, stride, padding, dilation, groups), 3
    )


def _each(value: int | Sequence[int], spatial: int) -> tuple[int, ...]:
    """One number per spatial dimension: of an int, or of a list of them or of one."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * spatial if len(values) == 1 else values


def transposed(
    function: Callable[..., torch.Tensor],
    spatial: int,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    output_padding: int | Sequence[int],
    groups: int,
    dilation: int | Sequence[int],
) -> torch.Tensor:
    """torch's `function`, a transposed convolution; output_padding may reach the stride, which torch refuses:
    rows that no input reaches hold the bias.
    """
    extra = _each(output_padding, spatial)
    if all(e < s or e < d for e, s, d in zip(extra, _each(stride, spatial), _each(dilation, spatial))):
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    ends = [(-p, e - p) for p, e in zip(_each(padding, spatial), extra)]
    out = F.pad(
        function(input, weight, None, stride, 0, 0, groups, dilation),
        [n for end in reversed(ends) for n in end],
    )
    return out if bias is None else out + bias.reshape(-1, *(1,) * spatial)


def conv_transpose1d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    data_format: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """1-d transposed convolution; differs from torch's: `data_format`, any `output_padding`."""
    last = is_channels_last(data_format)
    if last:
        input, weight = to_first(input, 1), to_first(weight, 1)
    out = transposed(
        F.conv_transpose1d, 1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
    return to_last(out, 1) if last else out


def conv_transpose2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    data_format: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """2-d transposed convolution; differs from torch's: `data_format`, any `output_padding`."""
    last = is_channels_last(data_format)
    if last:
        input, weight = to_first(input, 2), to_first(weight, 2)
    out = transposed(
        F.conv_transpose2d, 2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
    return to_last(out, 2) if last else out


def conv_transpose3d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    data_format: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """3-d transposed convolution; differs from torch's: `data_format`, any `output_padding`."""
    if not is_channels_last(data_format):
        return transposed(
            F.conv_transpose3d, 3, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return to_last(
        transposed(
            F.conv_transpose3d,
            3,
            to_first(input, 3),
            to_first(weight, 3),
            bias,
            stride,
            padding,
            output_padding,
            groups,
            dilation,
        ),
        3,
    )


def unfold(
    input: torch.Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
    data_format: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """Sliding blocks as columns (N, C * kernel, blocks); differs from torch's: the image may be
    (N, H, W, C).
    """
    image = to_first(input, 2) if is_channels_last(data_format) else input
    return F.unfold(image, kernel_size, dilation, padding, stride)


def fold(
    input: torch.Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
    data_format: Literal["channels_first", "channels_last"] = "channels_first",
) -> torch.Tensor:
    """Sum of sliding blocks; differs from torch's: the resulting image may be (N, H, W, C)."""
    image = F.fold(input, output_size, kernel_size, dilation, padding, stride)
    return to_last(image, 2) if is_channels_last(data_format) else image
