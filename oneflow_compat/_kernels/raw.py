"""Raw names of `oneflow._C` for what torch does in one call, under other names or arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .._ops import math
from .._ops._signature import spelled
from .._ops.nn import convolution as nn_conv
from . import _check

__all__ = [
    "add",
    "amp_black_identity",
    "amp_white_identity",
    "assign_local_tensor",
    "avg_pool2d_nhwc",
    "broadcast_equal",
    "constant",
    "contiguous_",
    "copy",
    "cosh_grad",
    "deconv1d",
    "deconv2d",
    "deconv3d",
    "host_scalar_add_by_tensor",
    "identity",
    "linalg_cross",
    "noncontiguous_binary_op",
    "pack_padded_sequence",
    "pixel_shuffle",
    "reciprocal_no_nan",
    "reshape_like",
    "select_top_n",
    "sigmoid_grad",
    "split_like",
    "stream_touch",
    "tan_grad",
    "tanh_grad",
    "tensor_constant",
    "throw_error",
    "to",
    "trunc_divide",
    "unfold_tensor",
    "upsample_bicubic_2d",
    "upsample_bilinear_2d",
    "upsample_linear_1d",
    "upsample_nearest_1d",
    "upsample_nearest_2d",
    "upsample_nearest_3d",
    "upsample_trilinear_3d",
]


def identity(input: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
    """The input, as a view. OneFlow calls the argument `in`.

    The result has the shape and dtype of the input.
    """
    x = _check.tensor_in("identity", input, kwargs)
    return x.view_as(x)


amp_white_identity = amp_black_identity = identity


@spelled("inputs=input")
def add(input: Any, other: Any = None, *rest: Any, alpha: Any = 1, inplace: bool = False) -> torch.Tensor:
    """input + alpha * other, with alpha and inplace by position too; or the sum of a list of tensors, or of
    three or more.

    torch.add otherwise: the operands broadcast, and the dtypes are promoted.
    """
    if rest and isinstance(rest[0], torch.Tensor):
        input = [input, other, *rest]
    elif rest:
        alpha, inplace = (*rest, inplace)[:2]
    if isinstance(input, (list, tuple)):
        return math.add(input, inplace=inplace)
    if inplace:
        return input.add_(other, alpha=alpha)
    return torch.add(input, other, alpha=alpha) if isinstance(input, torch.Tensor) else input + alpha * other


def assign_local_tensor(ref: torch.Tensor, value: torch.Tensor) -> None:
    """Copy value into ref."""
    with torch.no_grad():
        ref.copy_(value)


def avg_pool2d_nhwc(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: str,
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    data_format: str = "channels_first",
    ceil_mode: bool = False,
) -> torch.Tensor:
    """Average pooling of x (N, H, W, C).

    Padding is given by padding_before, which must equal padding_after; padded zeros do not count.

    NotImplementedError for paddings that differ.
    """
    if list(padding_before) != list(padding_after):
        raise NotImplementedError(
            f"avg_pool2d_nhwc: padding_before must equal padding_after, found {list(padding_before)} and"
            f" {list(padding_after)}"
        )
    return F.avg_pool2d(
        x.movedim(-1, 1), tuple(kernel_size), tuple(stride), tuple(padding_before), ceil_mode, False
    ).movedim(1, -1)


def broadcast_equal(input: torch.Tensor | float, other: torch.Tensor | float) -> torch.Tensor:
    """input == other, broadcast.

    The result is a bool tensor of the broadcast shape.
    """
    tensor: Any = input if isinstance(input, torch.Tensor) else other
    return torch.eq(tensor, other if tensor is input else input)


def constant(
    shape: Sequence[int], value: float, *, dtype: torch.dtype, device: torch.device | str | None = None
) -> torch.Tensor:
    """torch.full."""
    return torch.full(tuple(shape), value, dtype=dtype, device=device)


def tensor_constant(
    shape: Sequence[int], value: torch.Tensor, *, dtype: torch.dtype, device: torch.device | str | None = None
) -> torch.Tensor:
    """A tensor of `shape` filled with the 0-d tensor `value`."""
    return torch.empty(tuple(shape), dtype=dtype, device=device).fill_(value)


def contiguous_(input: torch.Tensor) -> torch.Tensor:
    """Make the tensor's own storage contiguous, in place.

    Return the tensor; shape and dtype stay.
    """
    if not input.is_contiguous():
        input.data = input.data.contiguous()
    return input


def copy(
    x: torch.Tensor,
    device_type: str | torch.device | None = None,
    device_id: int | None = None,
    pin_memory: bool = False,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """A copy on the device given by name and number, or by `device`.

    The result has the shape and dtype of the input.
    """
    if device is None:
        device = (
            device_type
            if device_id is None or not isinstance(device_type, str)
            else f"{device_type}:{device_id}"
        )
        device = "cpu" if isinstance(device, str) and device.startswith("cpu") else device
    out = x.to(device, copy=True)
    return out.pin_memory() if pin_memory else out


def to(x: torch.Tensor, *args: Any, other: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
    """Tensor.to, device, dtype and copy also as None; `other` is a tensor whose device and dtype to take."""
    return x.to(
        *(a for a in (other, *args) if a is not None), **{k: v for k, v in kwargs.items() if v is not None}
    )


def host_scalar_add_by_tensor(x: torch.Tensor, scalar: torch.Tensor) -> torch.Tensor:
    """x plus a one-element CPU tensor."""
    return x + scalar.to(x.device)


def linalg_cross(input: torch.Tensor, other: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """torch.linalg.cross; dim None is the first dimension of size 3.

    RuntimeError if no dimension has size 3.
    """
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"linalg_cross: no dimension of size 3 in {tuple(input.shape)}")
    return torch.linalg.cross(input, other, dim=dim)


_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
}


def noncontiguous_binary_op(
    lhs: torch.Tensor, rhs: torch.Tensor, op: str = "add", inplace: bool = False
) -> torch.Tensor:
    """add, sub, mul or div of tensors of any strides."""
    out = _BINARY[_check.one_of("noncontiguous_binary_op", "op", op, tuple(_BINARY))](lhs, rhs)
    return lhs.copy_(out) if inplace else out


def pack_padded_sequence(
    input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(data, batch sizes) of torch.nn.utils.rnn.pack_padded_sequence, lengths in descending order."""
    packed = torch.nn.utils.rnn.pack_padded_sequence(input, lengths.cpu(), batch_first)
    return packed.data, packed.batch_sizes


def pixel_shuffle(input: torch.Tensor, h_upscale_factor: int, w_upscale_factor: int) -> torch.Tensor:
    """(N, C * h * w, H, W) as (N, C, H * h, W * w)."""
    x = input.unflatten(1, (-1, h_upscale_factor, w_upscale_factor))
    return x.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)


def reciprocal_no_nan(x: torch.Tensor) -> torch.Tensor:
    """1 / x, and 0 where x is 0.

    The result has the shape and dtype of x.
    """
    return torch.where(
        x == 0, torch.zeros_like(x), torch.reciprocal(torch.where(x == 0, torch.ones_like(x), x))
    )


def reshape_like(
    input: torch.Tensor | None = None, like: torch.Tensor | None = None, **kwargs: Any
) -> torch.Tensor:
    """Reshape to the shape of `like`. OneFlow calls the first argument `in`."""
    x = _check.tensor_in("reshape_like", input, kwargs)
    return x.reshape(_check.needed("reshape_like", "like", like).shape)


def select_top_n(inputs: Sequence[torch.Tensor], n: int) -> tuple[torch.Tensor, ...]:
    """The first n tensors.

    The tensors may have any shape and dtype; they are the same objects.
    """
    return tuple(inputs[:n])


def split_like(x: torch.Tensor, like: Sequence[torch.Tensor], axis: int) -> tuple[torch.Tensor, ...]:
    """x cut along `axis` into the sizes of the tensors in `like`, whose other sizes are those of x.

    RuntimeError if x cannot be cut into these shapes. The parts are views.
    """
    axis = axis + x.dim() if axis < 0 else axis
    for t in like:
        if (
            not axis < t.dim() <= x.dim()
            or t.dim() != like[0].dim()
            or t.shape[:axis] != x.shape[:axis]
            or t.shape[axis + 1 :] != x.shape[axis + 1 : t.dim()]
        ):
            raise RuntimeError(
                f"split_like: along dimension {axis}, {tuple(x.shape)} has no part like {tuple(t.shape)}; the"
                " other sizes must agree"
            )
    return torch.split(x, [t.shape[axis] for t in like], axis)


def stream_touch(x: Sequence[torch.Tensor]) -> None:
    """Nothing: torch orders tensors by stream itself.

    The tensors may have any shape and dtype.
    """


def throw_error(input: torch.Tensor) -> None:
    """Raise in any case: the test operator of OneFlow's error handling.

    RuntimeError for a tensor of any shape and dtype.
    """
    raise RuntimeError("throw error kernel")


def trunc_divide(input: torch.Tensor, other: torch.Tensor | float, *, inplace: bool = False) -> torch.Tensor:
    """Division rounded toward zero; integers stay integers.

    The operands broadcast, and the dtypes are promoted, as in torch.div.
    """
    return (
        input.div_(other, rounding_mode="trunc")
        if inplace
        else torch.div(input, other, rounding_mode="trunc")
    )


def unfold_tensor(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Tensor.unfold.

    The arguments are those of torch.Tensor.unfold: dimension, size, step.
    """
    return x.unfold(dimension, size, step)


# --------------------------------------------------------------------------- gradients by hand
def cosh_grad(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dy * sinh(x).

    x and dy have one shape, which the result has.
    """
    return dy * torch.sinh(x)


def sigmoid_grad(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dy * y * (1 - y)."""
    return dy * y * (1 - y)


def tan_grad(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dy / cos(x)^2.

    x and dy have one shape, which the result has.
    """
    return dy / torch.cos(x).square()


def tanh_grad(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dy * (1 - tanh(y)^2): despite its name OneFlow's y is tanh's input."""
    return dy * (1 - torch.tanh(y).square())


# --------------------------------------------------------------------------- transposed convolution, resizing
deconv1d, deconv2d, deconv3d = nn_conv.conv_transpose1d, nn_conv.conv_transpose2d, nn_conv.conv_transpose3d


def _upsample(name: str, mode: str, axes: Sequence[str], corners: bool) -> Callable[..., torch.Tensor]:
    scale_names = [f"{a}_scale" for a in axes] if len(axes) > 1 else ["scale_factor"]
    parameters = scale_names + (["align_corners"] if corners else []) + ["output_size", "data_format"]

    def upsample(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) > len(parameters):
            raise TypeError(f"{name}() takes at most {len(parameters) + 1} arguments, found {len(args) + 1}")
        arguments = dict(zip(parameters, args))
        unknown = [k for k in kwargs if k not in parameters or k in arguments]
        if unknown:
            raise TypeError(f"{name}() got an unexpected or repeated argument {unknown[0]!r}")
        arguments.update(kwargs)
        if arguments.get("data_format", "channels_first") != "channels_first":
            raise NotImplementedError(
                f"{name}: data_format must be 'channels_first', found {arguments['data_format']!r}"
            )
        align = {"align_corners": bool(arguments.get("align_corners", False))} if corners else {}
        size = arguments.get("output_size")
        if size is not None:
            return F.interpolate(x, tuple(size), mode=mode, **align)
        scales = tuple(float(arguments.get(s, 0.0)) for s in scale_names)
        if min(scales) <= 0:
            raise RuntimeError(f"{name}: give output_size or positive scales, found {scales}")
        return F.interpolate(x, None, scales, mode=mode, **align)

    upsample.__name__ = upsample.__qualname__ = name
    upsample.__doc__ = (
        f"torch's interpolate, mode {mode!r}: {name}(x, {', '.join(parameters)}).\n\n"
        "x has shape (N, C, ...). RuntimeError without output_size and positive scales,\n"
        "NotImplementedError for channels-last data, TypeError for an unknown or repeated argument."
    )
    return upsample


upsample_linear_1d = _upsample("upsample_linear_1d", "linear", ("w",), True)
upsample_bilinear_2d = _upsample("upsample_bilinear_2d", "bilinear", ("height", "width"), True)
upsample_bicubic_2d = _upsample("upsample_bicubic_2d", "bicubic", ("height", "width"), True)
upsample_trilinear_3d = _upsample("upsample_trilinear_3d", "trilinear", ("depth", "height", "width"), True)
upsample_nearest_1d = _upsample("upsample_nearest_1d", "nearest", ("w",), False)
upsample_nearest_2d = _upsample("upsample_nearest_2d", "nearest", ("height", "width"), False)
upsample_nearest_3d = _upsample("upsample_nearest_3d", "nearest", ("depth", "height", "width"), False)
