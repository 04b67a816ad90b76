"""Convolution layers and upsampling."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .._functions.initializers import constant_initializer
from .._functions.orders import takes_older_orders
from .._jobs.variables import api_get_variable
from ..nn._windows import _conv, channels_last, from_first, spatial, to_first


def _layer(
    n: int,
    inputs: torch.Tensor,
    filters: int,
    kernel_size: int,
    strides: int,
    padding: str,
    data_format: str,
    dilation_rate: Any,
    groups: int,
    activation: Callable[..., Any] | None,
    use_bias: bool,
    kernel_initializer: Any,
    bias_initializer: Any,
    kernel_regularizer: Any,
    bias_regularizer: Any,
    trainable: bool,
    name: str,
    weight_name: Any,
    bias_name: Any,
) -> torch.Tensor:
    last = channels_last(data_format, n)
    channels = inputs.shape[-1 if last else 1]
    if filters % groups or channels % groups:
        raise ValueError(
            f"layers.conv{n}d: {channels} input channels and {filters} filters must be multiples of"
            f" groups={groups}"
        )
    kernel = spatial(kernel_size, n, "kernel_size")
    inner = channels // groups
    shape = (filters, *kernel, inner) if last else (filters, inner, *kernel)
    weight = api_get_variable(
        weight_name or f"{name}-weight",
        shape,
        inputs.dtype,
        kernel_initializer or constant_initializer(0),
        kernel_regularizer,
        trainable,
        "weight",
        reuse=False,
    )
    bias = None
    if use_bias:
        bias = api_get_variable(
            bias_name or f"{name}-bias",
            (filters,),
            inputs.dtype,
            bias_initializer or constant_initializer(0),
            bias_regularizer,
            trainable,
            "bias",
            reuse=False,
        )
    out = _conv(n, inputs, weight, strides, padding, bias, data_format, dilation_rate, groups)
    return activation(out) if callable(activation) else out


def conv1d(
    inputs: Any,
    filters: Any,
    kernel_size: int = 1,
    strides: int = 1,
    padding: str = "VALID",
    data_format: str = "NCW",
    dilation_rate: Any = None,
    groups: int = 1,
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str = "Conv1d",
    weight_name: Any = None,
    bias_name: Any = None,
) -> Any:
    """1-D convolution with its own variables.

    "<name>-weight": (filters, in / groups, w), or (filters, w, in / groups) for NWC. "<name>-bias": the bias.
    """
    return _layer(
        1,
        inputs,
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        dilation_rate,
        groups,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        trainable,
        name,
        weight_name,
        bias_name,
    )


def conv2d(
    inputs: torch.Tensor,
    filters: int,
    kernel_size: int = 1,
    strides: int = 1,
    padding: str = "VALID",
    data_format: str = "NCHW",
    dilation_rate: Any = None,
    groups: int = 1,
    activation: Callable[..., Any] | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str = "Conv2d",
    weight_name: Any = None,
    bias_name: Any = None,
) -> torch.Tensor:
    """2-D convolution with its own variables.

    "<name>-weight": (filters, in / groups, h, w), or (filters, h, w, in / groups) for NHWC.
    "<name>-bias": the bias.
    """
    return _layer(
        2,
        inputs,
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        dilation_rate,
        groups,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        trainable,
        name,
        weight_name,
        bias_name,
    )


def conv3d(
    inputs: Any,
    filters: Any,
    kernel_size: int = 1,
    strides: int = 1,
    padding: str = "VALID",
    data_format: str = "NCDHW",
    dilation_rate: Any = None,
    groups: int = 1,
    activation: Any = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str = "Conv3d",
    weight_name: Any = None,
    bias_name: Any = None,
) -> Any:
    return _layer(
        3,
        inputs,
        filters,
        kernel_size,
        strides,
        padding,
        data_format,
        dilation_rate,
        groups,
        activation,
        use_bias,
        kernel_initializer,
        bias_initializer,
        kernel_regularizer,
        bias_regularizer,
        trainable,
        name,
        weight_name,
        bias_name,
    )


@takes_older_orders("layers.upsample_2d")
def upsample_2d(
    x: torch.Tensor,
    size: float | Sequence[Any] = (2, 2),
    align_corners: bool = False,
    data_format: str = "NCHW",
    interpolation: str = "nearest",
    name: str = "Upsample2D",
) -> Any:
    """Enlarge by integer or fractional factors (height, width); interpolation is "nearest" or "bilinear"."""
    if interpolation not in ("nearest", "bilinear"):
        raise ValueError(
            f'upsample_2d: interpolation must be "nearest" or "bilinear", found {interpolation!r}'
        )
    if interpolation == "nearest" and align_corners:
        raise ValueError("upsample_2d: align_corners is for bilinear interpolation only")
    last = channels_last(data_format, 2)
    factors = (size, size) if isinstance(size, (int, float)) else tuple(size)
    x = to_first(x, last)
    out_size = tuple(int(x.shape[2 + i] * factors[i]) for i in range(2))
    return from_first(
        F.interpolate(
            x,
            size=out_size,
            mode=interpolation,
            align_corners=align_corners if interpolation == "bilinear" else None,
        ),
        last,
    )
