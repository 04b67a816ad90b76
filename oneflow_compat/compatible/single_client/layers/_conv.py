"""Convolution layers and upsampling."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .._functions.initializers import constant_initializer
from .._functions.orders import takes_older_orders
from .._jobs.variables import api_get_variable
from ..nn._windows import _conv, channels_last, from_first, spatial, to_first


def _convolution(n: int, data_format: str) -> Callable[..., torch.Tensor]:
    """Return the layer "conv<n>d", whose default layout is `data_format`."""

    def convolution(
        inputs: torch.Tensor,
        filters: int,
        kernel_size: int = 1,
        strides: int = 1,
        padding: str = "VALID",
        data_format: str = data_format,
        dilation_rate: int | Sequence[int] | None = None,
        groups: int = 1,
        activation: Callable[..., torch.Tensor] | None = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        trainable: bool = True,
        name: str = f"Conv{n}d",
        weight_name: str | None = None,
        bias_name: str | None = None,
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

    convolution.__name__ = convolution.__qualname__ = f"conv{n}d"
    convolution.__doc__ = f"""{n}-D convolution with its own variables.

    "<name>-weight": (filters, in / groups, *kernel), or (filters, *kernel, in / groups) with channels last.
    "<name>-bias": the bias.
    """
    return convolution


conv1d = _convolution(1, "NCW")
conv2d = _convolution(2, "NCHW")
conv3d = _convolution(3, "NCDHW")


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
