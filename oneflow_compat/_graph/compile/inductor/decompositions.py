"""Operators that inductor gets as plain torch.

These are operators of oneflow._ext that inductor fuses with their neighbors, LSTM layers, resizing, and
operators that inductor gets wrong. The other custom operators stay kernels: a masked softmax is faster so (29
against 55 ms, measured), bias and gelu take the same time either way, and the masks of dropout belong to
their kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...._kernels import _ext
from ...._kernels.kernels import POINT_NAMES
from . import lstm, resizing
from .samplers import random_from

if TYPE_CHECKING:
    from torch._ops import OpOverload

_EXTREMES = [
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overloads in {
        "amin": ("default",),
        "amax": ("default",),
        "argmin": ("default",),
        "argmax": ("default",),
        "min": ("default", "dim"),
        "max": ("default", "dim"),
    }.items()
    for overload in overloads
]

Decomposed = Any  # a tensor, or NotImplemented if inductor has to compile the operator as it is


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _quick_gelu_backward(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(1.702 * x)
    return dy * s * (1 + 1.702 * x * (1 - s))


def _square_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).square()


def _square_relu_backward(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return 2 * torch.relu(x) * dy


_SLOPE = 2 * math.sqrt(2 / math.pi)


def _gate(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(_SLOPE * (x + 0.044715 * x * x * x))


def _fast_gelu_mul(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return x * _gate(x) * m


def _fast_gelu_mul_backward(
    x: torch.Tensor, m: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    s = _gate(x)
    return dy * m * (s + _SLOPE * x * s * (1 - s) * (1 + 3 * 0.044715 * x * x)), dy * x * s


_POINT: dict[str, Callable[..., Any]] = {
    "quick_gelu": _quick_gelu,
    "quick_gelu_backward": _quick_gelu_backward,
    "square_relu": _square_relu,
    "square_relu_backward": _square_relu_backward,
    "fast_gelu_mul": _fast_gelu_mul,
    "fast_gelu_mul_backward": _fast_gelu_mul_backward,
}


def plain_pointwise(op: int) -> Callable[..., Any] | None:
    """Return the operator of oneflow::pointwise in plain torch, or None if it stays a kernel."""
    return _POINT.get(POINT_NAMES[op])


def _pointwise(op: int, inputs: list[torch.Tensor], outputs: int, scalars: list[float]) -> Decomposed:
    function, dtype = plain_pointwise(op), inputs[0].dtype
    if function is None:
        return NotImplemented
    out = function(*(t.float() if dtype in (torch.float16, torch.bfloat16) else t for t in inputs))
    return [o.to(dtype) for o in (out if isinstance(out, tuple) else (out,))]


def _scale_tril(x: torch.Tensor, diagonal: int, scale: float, fill: float) -> torch.Tensor:
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape[-2:])
    return torch.where(columns <= rows[:, None] + diagonal, x * scale, fill)


def _multilabel_margin(
    x: torch.Tensor, labels: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mask the targets after the last label; torch's own decomposition (2.13) counts them."""
    rows, named = torch.atleast_2d(x), torch.atleast_2d(labels)
    positions, width = torch.arange(rows.shape[1], device=x.device), rows.shape[1]
    is_label = positions < torch.where(named == -1, positions, width).amin(-1, keepdim=True)
    is_target = (positions == torch.where(is_label, named, -1).unsqueeze(-1)).any(1)
    targets = rows.gather(-1, torch.where(is_label, named, 0)).unsqueeze(-1)
    margin = (1 - targets + rows.unsqueeze(1)).clamp_min(0)
    counted = torch.where(is_label.unsqueeze(-1) & ~is_target.unsqueeze(1), margin, 0)
    loss = (counted.sum((1, 2)) / width).reshape(x.shape[:-1])
    return (loss, loss.mean(), loss.sum())[reduction], is_target.to(x.dtype).reshape(labels.shape)


def _multi_margin(
    x: torch.Tensor,
    target: torch.Tensor,
    p: float = 1,
    margin: float = 1,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    """Keep a result without dimensions for a label without dimensions; torch's own decomposition (2.13)
    returns a row of one value.
    """
    from torch._decomp.decompositions import multi_margin_loss

    loss = multi_margin_loss(x, target, p, margin, weight, reduction)
    return loss if reduction else loss.reshape(target.shape)


def _avg_pool_backward(
    op: OpOverload,
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None = None,
) -> Decomposed:
    """Divide by the part of the window inside the padded input.

    Inductor's own form (2.13) divides by the full window even if only a part of it lies within the padded
    input. It also refuses lists of one integer.
    """
    dims = 2 if "2d" in op._opname else 3
    if 1 in (len(kernel), len(stride), len(padding)):
        kernel, stride, padding = (list(v) * dims if len(v) == 1 else v for v in (kernel, stride, padding))
        return op(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    if divisor is not None or not (ceil_mode and count_include_pad):
        return NotImplemented
    count: Any = 1
    stride, whole = stride or kernel, True
    for d in range(dims):
        size, windows = x.shape[d - dims], grad.shape[d - dims]
        start = torch.arange(windows, device=x.device) * stride[d] - padding[d]
        length = (start + kernel[d]).clamp_max(size + padding[d]) - start
        count = count * length.view(-1, *[1] * (dims - 1 - d))
        whole = whole and (windows - 1) * stride[d] + kernel[d] <= size + 2 * padding[d]
    if whole:
        return NotImplemented
    parts = grad / count
    # computed once, not once per reader
    parts = torch.ops.prims.inductor_force_stride_order.default(parts, parts.stride())
    return op(parts, x, kernel, stride, padding, ceil_mode, count_include_pad, 1)


def _integer_power(base: float, exponent: torch.Tensor) -> Decomposed:
    """Compute an integer power without the C wrapper, which passes the base as a double (2.13): the kernel
    would write float32 into an integer buffer.
    """
    dtype = torch.result_type(base, exponent)
    if dtype.is_floating_point or dtype.is_complex:
        return NotImplemented
    return torch.full((), base, dtype=dtype, device=exponent.device).pow(exponent)


def _softshrink(x: torch.Tensor, bound: float = 0.5) -> torch.Tensor:
    """Keep NaN; torch's own decomposition (2.13) turns it into 0."""
    return torch.where(x.abs() <= bound, 0, x - x.sign() * bound)


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the norms of half types in float32, as the kernel does. Its gradient takes no others."""
    computed = torch.float32 if g.dtype in (torch.float16, torch.bfloat16) else g.dtype
    others = [i for i in range(v.dim()) if i != dim]
    norms = torch.linalg.vector_norm(v.to(computed), 2, others, keepdim=True)
    return (v.to(computed) * (g.to(computed) / norms)).to(v.dtype), norms


def _extreme(op: OpOverload, x: torch.Tensor, *args: Any, **kwargs: Any) -> Decomposed:
    """Find the smallest or largest 8-bit integer among 32-bit integers. Inductor's C++ kernels (2.13) fill a
    quarter of a vector with 8-bit elements, and compare the zeros in the rest, too.
    """
    if x.dtype not in (torch.int8, torch.uint8) or x.device.type != "cpu":
        return NotImplemented
    results = op(x.to(torch.int32), *args, **kwargs)
    return torch.utils._pytree.tree_map(lambda r: r.to(x.dtype) if r.dtype is torch.int32 else r, results)


def _truth(op: OpOverload, x: torch.Tensor, *args: Any, **kwargs: Any) -> Decomposed:
    """Return uint8 for uint8, as eager does. Inductor's form of any() (2.13) returns bool."""
    return op(x != 0, *args, **kwargs).to(x.dtype) if x.dtype is torch.uint8 else NotImplemented


def _on_cpu(form: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., Decomposed]:
    """Decompose floating operands on the CPU in at least float32, as torch's kernels compute."""

    def decomposed(
        a: torch.Tensor | float, b: torch.Tensor | float, *, rounding_mode: str | None = "floor"
    ) -> Decomposed:
        tensors = [t for t in (a, b) if isinstance(t, torch.Tensor)]
        dtype = torch.result_type(a, b)
        if (
            rounding_mode != "floor"
            or not dtype.is_floating_point
            or any(t.device.type != "cpu" for t in tensors)
        ):
            return NotImplemented
        wide = torch.promote_types(dtype, torch.float32)
        tensors = [t if isinstance(t, torch.Tensor) else torch.full((), t, dtype=dtype) for t in (a, b)]
        return form(*(t.to(dtype).to(wide) for t in tensors)).to(dtype)

    return decomposed


def _remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute the exact remainder; inductor (2.13) computes a - floor(a / b) * b."""
    rest = torch.fmod(a, b)
    return torch.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def _floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Round the exact quotient down. Inductor (2.13) takes the floor of the rounded quotient: 11.0 // 0.44 is
    24.
    """
    rest = torch.fmod(a, b)
    quotient = (a - rest) / b
    quotient = torch.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    signed_zero = torch.copysign(torch.zeros_like(quotient), a / b)
    return torch.where(b == 0, a / b, torch.where(quotient == 0, signed_zero, whole))


def _zeros(size: Sequence[int], **options: Any) -> torch.Tensor:
    """Return ordinary zeros for a tensor without memory (forward derivatives create them), because compiled
    code cannot read it.
    """
    return torch.zeros(size, **{k: v for k, v in options.items() if v is not None})


def _sum(
    plain: Callable[..., torch.Tensor] | None, x: torch.Tensor, y: torch.Tensor | float, *, alpha: float = 1
) -> Decomposed:
    """Add two terms. If a term is a matrix product, inductor (2.13) fuses the two and drops the factor."""
    if alpha == 1:
        return NotImplemented if plain is None else plain(x, y)
    return x + (y.to(torch.result_type(x, y)) if isinstance(y, torch.Tensor) else y) * alpha


def _assertion(condition: torch.Tensor) -> None:
    """Give the assertion eager mode's message; inductor drops the operator without one."""
    aten = torch.ops.aten
    aten._assert_async.msg(condition, "Expected Tensor with single nonzero value, but got zero")


def _without_negative(
    plain: Callable[..., torch.Tensor],
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    *args: Any,
    **options: Any,
) -> torch.Tensor:
    """Replace negative indices by the first index that is out of bounds. Inductor (2.13) counts them from the
    end, and the kernel raises an error.
    """
    size = x.shape[dim] if x.dim() else 1
    return plain(x, dim, torch.where(index < 0, size, index), *args, **options)


def _checked_cross_entropy(
    plain: Callable[..., torch.Tensor], x: torch.Tensor, target: torch.Tensor, *args: Any, **options: Any
) -> torch.Tensor:
    """Check the range of probabilities as the kernel does. torch's own decomposition (2.13) does not."""
    for values, name in ((x, "input"), (target, "target")):
        torch.ops.aten._assert_async.msg(
            ((values >= 0) & (values <= 1)).all(), f"all elements of {name} should be between 0 and 1"
        )
    return plain(x, target, *args, **options)


def table() -> dict[torch._ops.OpOverload, Callable[..., Decomposed]]:
    """Return {operator: decomposition}. Operators of oneflow._ext and LSTM layers are included only if the
    library is loaded.
    """
    from torch._inductor.decomposition import select_decomp_table

    aten, plain = torch.ops.aten, select_decomp_table()
    decompositions: dict[torch._ops.OpOverload, Callable[..., Decomposed]] = {
        aten.add.Tensor: functools.partial(_sum, plain.get(aten.add.Tensor)),
        **{
            op: functools.partial(_without_negative, plain[op])
            for op in (aten.index_select.default, aten.index_add.default, aten.index_copy.default)
        },
        aten.binary_cross_entropy.default: functools.partial(
            _checked_cross_entropy, plain[aten.binary_cross_entropy.default]
        ),
        aten.upsample_bilinear2d.default: resizing.linear,
        aten.upsample_trilinear3d.default: resizing.linear,
        aten.upsample_bicubic2d.default: resizing.cubic,
        aten.upsample_nearest2d.default: resizing.nearest,
        aten.upsample_nearest2d_backward.default: resizing.nearest_backward,
        aten.upsample_bilinear2d_backward.default: resizing.bilinear_backward,
        **{
            op: functools.partial(_avg_pool_backward, op)
            for op in (aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
        },
        aten.multilabel_margin_loss_forward.default: _multilabel_margin,
        aten.multi_margin_loss.default: _multi_margin,
        aten._efficientzerotensor.default: _zeros,
        aten._assert_async.default: _assertion,
        aten.pow.Scalar: _integer_power,
        aten.softshrink.default: _softshrink,
        aten._weight_norm_interface.default: _weight_norm,
        getattr(aten.random, "from"): random_from,
        **{op: functools.partial(_extreme, op) for op in _EXTREMES},
        **{op: functools.partial(_truth, op) for op in (aten.any.default, aten.any.dim, aten.any.dims)},
        **dict.fromkeys((aten.div.Tensor_mode, aten.div.Scalar_mode), _on_cpu(_floor_divide)),
        **dict.fromkeys(
            (aten.floor_divide.default, aten.floor_divide.Scalar),
            functools.partial(torch.div, rounding_mode="floor"),
        ),
        **dict.fromkeys(
            (aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor), _on_cpu(_remainder)
        ),
    }
    if _ext.status() != "loaded":
        return decompositions
    return decompositions | {
        torch.ops.oneflow.pointwise.default: _pointwise,
        torch.ops.oneflow.scale_tril.default: _scale_tril,
        torch.ops.aten.mkldnn_rnn_layer.default: lstm.layer,
        torch.ops.aten.mkldnn_rnn_layer_backward.default: lstm.layer_backward,
    }
