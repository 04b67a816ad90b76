"""Convolution and pooling with OneFlow's layouts and paddings.

Layouts are "NHWC", "NCHW", ...; paddings are "SAME", "VALID" or explicit sizes.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .._functions.orders import takes_older_orders


def spatial(value: float | Sequence[int], n: int, what: str) -> tuple[int, ...]:
    """Return n values from one value, n values, or a list that also covers batch and channel."""
    if isinstance(value, int):
        return (value,) * n
    value = tuple(value)
    if len(value) == 1:
        return value * n
    if len(value) != n:
        raise ValueError(f"{what} must be a number or {n} numbers, found {value}")
    return value


def channels_last(data_format: str, n: int) -> bool:
    """Return True for "NHWC" and its like; a layout with a different number of dimensions is an error."""
    letters = "DHW"[3 - n :]
    layouts = {f"NC{letters}": False, f"N{letters}C": True}
    if data_format.upper() not in layouts:
        raise ValueError(f"data_format must be one of {', '.join(layouts)}, found {data_format!r}")
    return layouts[data_format.upper()]


def to_first(x: torch.Tensor, last: bool) -> torch.Tensor:
    return x.movedim(-1, 1) if last else x


def from_first(x: torch.Tensor, last: bool) -> torch.Tensor:
    return x.movedim(1, -1) if last else x


def same_pads(size: int, kernel: int, stride: int, dilation: int, lower: bool) -> tuple[int, ...]:
    """(before, after) so that the output has ceil(size / stride) positions."""
    total = max(0, (math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def window_pads(
    padding: str | int | Sequence[Any],
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    last: bool,
) -> list[Any]:
    """Return [(before, after), ...] of a padding.

    The padding is "SAME" (= "SAME_LOWER"), "SAME_UPPER", "VALID", an int, a list of ints, or pairs.
    """
    n = len(kernel)
    if isinstance(padding, str):
        mode = padding.upper()
        if mode == "VALID":
            return [(0, 0)] * n
        if mode not in ("SAME", "SAME_LOWER", "SAME_UPPER"):
            raise ValueError(
                f'padding must be "SAME", "SAME_LOWER", "SAME_UPPER", "VALID" or numbers, found {padding!r}'
            )
        return [
            same_pads(s, k, st, d, mode != "SAME_UPPER")
            for s, k, st, d in zip(sizes, kernel, stride, dilation)
        ]
    if isinstance(padding, int):
        return [(padding, padding)] * n
    padding = list(padding)
    if len(padding) == n + 2:  # batch and channel are listed too
        padding = padding[1:-1] if last else padding[2:]
    if len(padding) != n:
        raise ValueError(
            f"padding must list {n} dimensions (or {n + 2} with batch and channel), found {padding}"
        )
    pairs = [(p, p) if isinstance(p, int) else tuple(p) for p in padding]
    return [p * 2 if len(p) == 1 else p for p in pairs]


def _apply_pads(x: torch.Tensor, pads: Sequence[Any], value: float = 0.0) -> torch.Tensor:
    if not any(p for pair in pads for p in pair):
        return x
    return F.pad(x, [p for pair in reversed(pads) for p in pair], value=value)


def _conv(
    n: int,
    x: torch.Tensor,
    filters: torch.Tensor,
    strides: int | Sequence[int],
    padding: str | int | Sequence[Any],
    bias: torch.Tensor | None,
    data_format: str,
    dilations: int | None,
    groups: int,
) -> torch.Tensor:
    last = channels_last(data_format, n)
    stride = spatial(strides, n, "strides")
    dilation = spatial(1 if dilations is None else dilations, n, "dilations")
    x, filters = to_first(x, last), to_first(filters, last)
    if x.shape[1] != filters.shape[1] * groups:
        raise ValueError(
            f"conv{n}d: {x.shape[1]} input channels do not fit filters of shape {tuple(filters.shape)}"
            f" (channels first) in {groups} groups"
        )
    pads = window_pads(padding, x.shape[2:], filters.shape[2:], stride, dilation, last)
    even = all(a == b for a, b in pads)
    if not even:
        x = _apply_pads(x, pads)
    function = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    out = function(x, filters, bias, stride, tuple(a for a, _ in pads) if even else 0, dilation, groups)
    return from_first(out, last)


def conv1d(
    input: torch.Tensor,
    filters: torch.Tensor,
    strides: int,
    padding: str,
    data_format: str = "NCW",
    dilations: Any = None,
    groups: int = 1,
    name: str | None = None,
) -> torch.Tensor:
    """filters: (out, in / groups, width) for NCW, (out, width, in / groups) for NWC."""
    return _conv(1, input, filters, strides, padding, None, data_format, dilations, groups)


@takes_older_orders("nn.conv2d")
def conv2d(
    input: torch.Tensor,
    filters: torch.Tensor,
    strides: int | Sequence[int],
    padding: str | int | Sequence[Any],
    bias: torch.Tensor | None = None,
    data_format: str = "NCHW",
    dilations: int | None = None,
    groups: int = 1,
    name: str | None = None,
) -> torch.Tensor:
    """filters: (out, in / groups, h, w) for NCHW, (out, h, w, in / groups) for NHWC."""
    return _conv(2, input, filters, strides, padding, bias, data_format, dilations, groups)


def compat_conv2d(
    input: torch.Tensor,
    filters: torch.Tensor,
    strides: int,
    padding: str,
    data_format: str = "NCHW",
    dilations: Any = None,
    groups: int = 1,
    name: str | None = None,
) -> torch.Tensor:
    """conv2d whose "SAME" is "SAME_UPPER"."""
    if isinstance(padding, str) and padding.upper() == "SAME":
        padding = "SAME_UPPER"
    return _conv(2, input, filters, strides, padding, None, data_format, dilations, groups)


def conv3d(
    input: torch.Tensor,
    filters: torch.Tensor,
    strides: int,
    padding: str,
    data_format: str = "NCDHW",
    dilations: Any = None,
    groups: int = 1,
    name: str | None = None,
) -> torch.Tensor:
    return _conv(3, input, filters, strides, padding, None, data_format, dilations, groups)


def conv2d_transpose(
    value: torch.Tensor | None = None,
    filter: torch.Tensor | None = None,
    output_shape: Any = None,
    strides: int | None = None,
    padding: str = "VALID",
    data_format: str = "NCHW",
    name: str | None = None,
    input: torch.Tensor | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> torch.Tensor:
    """The gradient of conv2d with respect to its input, of shape `output_shape`.

    filter: (in, out, h, w) for NCHW, (in, h, w, out) for NHWC, where `in` are the channels of `value`.
    """
    value, filter = (input if value is None else value), (filters if filter is None else filter)
    last = channels_last(data_format, 2)
    stride, dilation = (
        spatial(strides, 2, "strides"),
        spatial(1 if dilations is None else dilations, 2, "dilations"),
    )
    x, w = to_first(value, last), to_first(filter, last)
    size = (
        (output_shape[1:3] if last else output_shape[2:4]) if len(output_shape) == 4 else tuple(output_shape)
    )
    before, extra = [], []
    for i in range(2):
        reached = (x.shape[2 + i] - 1) * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1
        if isinstance(padding, str):
            if padding.upper() == "VALID":
                before.append((0, 0))
            else:
                pads = same_pads(
                    size[i], w.shape[2 + i], stride[i], dilation[i], padding.upper() != "SAME_UPPER"
                )
                before.append(pads)
        else:
            before.append(window_pads(padding, size, w.shape[2:], stride, dilation, last)[i])
        extra.append(size[i] - (reached - sum(before[i])))
        if not 0 <= extra[i] < max(stride[i], dilation[i]):
            raise ValueError(
                f"conv2d_transpose: output_shape {tuple(output_shape)} does not fit input"
                f" {tuple(value.shape)}, stride {stride} and padding {padding!r}"
            )
    full = F.conv_transpose2d(x, w, None, stride, 0, tuple(extra), 1, dilation)
    (top, _), (left, _) = before
    return from_first(full[:, :, top : top + size[0], left : left + size[1]], last)


def torch_conv2d_transpose(
    value: torch.Tensor | None = None,
    filter: torch.Tensor | None = None,
    output_padding: Sequence[int] | None = None,
    strides: int | None = None,
    padding_needed: Sequence[int] | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
    input: torch.Tensor | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> torch.Tensor:
    """conv2d_transpose in torch's terms.

    `padding_needed` is the total padding per dimension (before + after).
    """
    value, filter = (input if value is None else value), (filters if filter is None else filter)
    last = channels_last(data_format, 2)
    needed = [0, 0] if padding_needed is None else list(padding_needed)
    if any(p % 2 for p in needed):
        raise ValueError(f"torch_conv2d_transpose: padding_needed must be even, found {needed}")
    out = F.conv_transpose2d(
        to_first(value, last),
        to_first(filter, last),
        None,
        spatial(strides, 2, "strides"),
        tuple(p // 2 for p in needed),
        tuple(output_padding or (0, 0)),
        1,
        spatial(1 if dilations is None else dilations, 2, "dilations"),
    )
    return from_first(out, last)


# ---------------------------------------------------------------- pooling
def _pool(
    n: int,
    how: str,
    x: torch.Tensor,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str | Sequence[Any],
    data_format: str,
    ceil_mode: bool,
) -> torch.Tensor:
    """Pool over `n` spatial dimensions: `how` is "max", or "avg" over the elements inside the input."""
    last = channels_last(data_format, n)
    kernel = spatial(ksize, n, "ksize")
    stride = kernel if strides is None else spatial(strides, n, "strides")
    x = to_first(x, last)
    sizes = x.shape[2:]
    pads = window_pads(padding, sizes, kernel, stride, (1,) * n, last)
    if ceil_mode:
        for i in range(n):
            rest = (sizes[i] + sum(pads[i]) - kernel[i]) % stride[i]
            if (
                rest
                and (sizes[i] + sum(pads[i]) + stride[i] - rest - kernel[i]) // stride[i] * stride[i]
                < sizes[i] + pads[i][0]
            ):
                pads[i] = (pads[i][0], pads[i][1] + stride[i] - rest)
    padded = any(p for pair in pads for p in pair)
    if how == "max":
        filled = (
            _apply_pads(x, pads, -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min)
            if padded
            else x
        )
        out = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1](filled, kernel, stride)
    else:
        function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
        out = function(_apply_pads(x, pads), kernel, stride)
        if padded:  # average only over elements inside the input
            inside = _apply_pads(torch.ones((1, 1, *sizes), dtype=x.dtype, device=x.device), pads)
            out = out / function(inside, kernel, stride)
    return from_first(out, last)


def max_pool1d(
    input: torch.Tensor,
    ksize: int,
    strides: int,
    padding: str,
    data_format: str = "NWC",
    name: str | None = None,
) -> torch.Tensor:
    return _pool(1, "max", input, ksize, strides, padding, data_format, False)


@takes_older_orders("nn.max_pool2d")
def max_pool2d(
    input: torch.Tensor,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str | Sequence[Any],
    data_format: str = "NCHW",
    ceil_mode: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    return _pool(2, "max", input, ksize, strides, padding, data_format, ceil_mode)


@takes_older_orders("nn.max_pool3d")
def max_pool3d(
    input: torch.Tensor,
    ksize: int,
    strides: int,
    padding: str,
    data_format: str = "NCDHW",
    ceil_mode: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    return _pool(3, "max", input, ksize, strides, padding, data_format, ceil_mode)


def avg_pool1d(
    input: torch.Tensor,
    ksize: int,
    strides: int,
    padding: str,
    data_format: str = "NCW",
    name: str | None = None,
) -> torch.Tensor:
    return _pool(1, "avg", input, ksize, strides, padding, data_format, False)


@takes_older_orders("nn.avg_pool2d")
def avg_pool2d(
    input: torch.Tensor,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str | Sequence[Any],
    data_format: str = "NCHW",
    ceil_mode: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    """Mean over the part of each window that lies inside the input."""
    return _pool(2, "avg", input, ksize, strides, padding, data_format, ceil_mode)


@takes_older_orders("nn.avg_pool3d")
def avg_pool3d(
    input: torch.Tensor,
    ksize: int,
    strides: int,
    padding: str,
    data_format: str = "NCDHW",
    ceil_mode: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    return _pool(3, "avg", input, ksize, strides, padding, data_format, ceil_mode)
