"""Mathematics of the job-function API where it is not torch's function under another name."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def _pair(x: torch.Tensor, y: torch.Tensor | int) -> tuple[torch.Tensor, ...]:
    """Return both as tensors; a Python scalar takes the dtype of the other side."""
    if not isinstance(x, torch.Tensor):
        if not isinstance(y, torch.Tensor):
            raise TypeError(f"one of the two arguments must be a blob, found {x!r} and {y!r}")
        x = torch.full((), x, dtype=y.dtype, device=y.device)
    elif not isinstance(y, torch.Tensor):
        y = torch.full((), y, dtype=x.dtype, device=x.device)
    return x, y


def _int8(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(*_pair(x, y)).to(torch.int8)


equal, not_equal = _int8(torch.eq), _int8(torch.ne)
less, less_equal = _int8(torch.lt), _int8(torch.le)
greater, greater_equal = _int8(torch.gt), _int8(torch.ge)
logical_and = _int8(torch.logical_and)


def add(x: torch.Tensor, y: torch.Tensor | int) -> torch.Tensor:
    return torch.add(*_pair(x, y))


def subtract(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sub(*_pair(x, y))


def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.mul(*_pair(x, y))


def divide(x: torch.Tensor, y: torch.Tensor | int) -> torch.Tensor:
    """Quotient; a quotient of integers is rounded toward zero."""
    x, y = _pair(x, y)
    whole = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc" if whole else None)


def floordiv(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.div(*_pair(x, y), rounding_mode="floor")  # floor_divide has no gradient (zero)


def mod(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Remainder with the sign of y."""
    return torch.remainder(*_pair(x, y))


def maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.maximum(*_pair(x, y))


def minimum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.minimum(*_pair(x, y))


def pow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.pow(x, y)


def atan2(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.atan2(*_pair(x, y))


def squared_difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.square(subtract(x, y))


def xlogy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.xlogy(*_pair(x, y))


def xdivy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x / y, 0 where x is 0."""
    x, y = _pair(x, y)
    zero = x == 0
    return torch.where(zero, torch.zeros_like(x), x / torch.where(zero, torch.ones_like(y), y))


def reciprocal_no_nan(x: torch.Tensor) -> torch.Tensor:
    zero = x == 0
    return torch.where(zero, torch.zeros_like(x), 1 / torch.where(zero, torch.ones_like(x), x))


def add_n(inputs: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    if isinstance(inputs, torch.Tensor):
        return inputs
    if not inputs:
        raise ValueError("math.add_n: give at least one blob")
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total


# ---------------------------------------------------------------- reductions
def axes(x: torch.Tensor, axis: int | Sequence[int] | None) -> tuple[Any, ...]:
    """The axes as non-negative integers; None means all."""
    if axis is None:
        return tuple(range(x.dim()))
    chosen = [axis] if isinstance(axis, int) else list(axis)
    for a in chosen:
        if not -x.dim() <= a < x.dim():
            raise ValueError(f"axis {a} is out of range for a blob of {x.dim()} dimensions")
    return tuple(a % x.dim() for a in chosen)


def reduce_sum(x: torch.Tensor, axis: int | Sequence[Any] | None, keepdims: bool) -> torch.Tensor:
    dims = axes(x, axis)
    x = x.to(torch.int8) if x.dtype == torch.bool else x  # blob == blob, whose elements count
    return (
        torch.sum(x, dims, keepdim=keepdims, dtype=x.dtype if not x.is_floating_point() else None)
        if dims
        else x
    )


def reduce_mean(x: torch.Tensor, axis: Sequence[int] | None, keepdims: bool) -> torch.Tensor:
    """Mean over the axes; of integers, rounded toward zero and of their dtype."""
    dims = axes(x, axis)
    if not dims:
        return x
    if x.is_floating_point():
        return torch.mean(x, dims, keepdim=keepdims)
    return torch.mean(x, dims, keepdim=keepdims, dtype=torch.float64).to(x.dtype)


def reduce_max(x: torch.Tensor, axis: int | Sequence[int], keepdims: bool) -> torch.Tensor:
    dims = axes(x, axis)
    return torch.amax(x, dims, keepdim=keepdims) if dims else x


def reduce_min(x: torch.Tensor, axis: int, keepdims: bool) -> torch.Tensor:
    dims = axes(x, axis)
    return torch.amin(x, dims, keepdim=keepdims) if dims else x


def reduce_prod(x: torch.Tensor, axis: Any, keepdims: bool) -> torch.Tensor:
    for a in sorted(axes(x, axis), reverse=True):
        x = torch.prod(x, a, keepdim=keepdims)
    return x


def reduce_any(x: torch.Tensor, axis: Sequence[int], keepdims: bool) -> torch.Tensor:
    dims = axes(x, axis)
    return (torch.any(x != 0, dims, keepdim=keepdims) if dims else x != 0).to(torch.int8)


def reduce_all(x: torch.Tensor, axis: int | Sequence[Any], keepdims: bool) -> torch.Tensor:
    dims = axes(x, axis)
    return (torch.all(x != 0, dims, keepdim=keepdims) if dims else x != 0).to(torch.int8)


def reduce_euclidean_norm(x: torch.Tensor, axis: int | Sequence[Any], keepdims: bool) -> torch.Tensor:
    return torch.sqrt(reduce_sum(torch.square(x), axis, keepdims))


def reduce_logsumexp(x: torch.Tensor, axis: Sequence[int], keepdims: bool) -> torch.Tensor:
    dims = axes(x, axis)
    return torch.logsumexp(x, dims, keepdim=keepdims) if dims else x


def reduce_variance(x: torch.Tensor, axis: int | Sequence[int], keepdims: bool) -> torch.Tensor:
    """Population variance (divided by the number of elements)."""
    dims = axes(x, axis)
    return torch.var(x, dims, correction=0, keepdim=keepdims) if dims else torch.zeros_like(x)


def reduce_std(x: torch.Tensor, axis: int | Sequence[Any], keepdims: bool) -> torch.Tensor:
    return torch.sqrt(reduce_variance(x, axis, keepdims))


def reduced_shape_elem_cnt(x: torch.Tensor, axis: int, dtype: torch.dtype | None) -> torch.Tensor:
    count = 1
    for a in axes(x, axis):
        count *= x.shape[a]
    return torch.full((), count, dtype=dtype or torch.int32, device=x.device)


# ---------------------------------------------------------------- the rest
def argmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.argmax(x, axis).to(torch.int32)


def top_k(x: torch.Tensor, axis: int, k: int, sorted: bool) -> torch.Tensor:
    """Indices (int32) of the k largest along the axis, largest first."""
    (axis,) = axes(x, axis)
    return torch.topk(x, min(k, x.shape[axis]), axis, sorted=sorted)[1].to(torch.int32)


def in_top_k(targets: torch.Tensor, predictions: torch.Tensor, k: int) -> torch.Tensor:
    """Return int8 flags: whether the target's prediction is among the k largest of its row.

    Ties count as inside.
    """
    chosen = predictions.gather(1, targets.long().unsqueeze(1))
    return ((predictions > chosen).sum(1) < k).to(torch.int8)


def l2_normalize(x: torch.Tensor, axis: int, epsilon: float) -> torch.Tensor:
    """x / sqrt(max(sum of squares along the axis, epsilon)); the axis is 0 if None."""
    square = torch.square(x).sum(0 if axis is None else axis, keepdim=True)
    return x / torch.sqrt(torch.clamp(square, min=epsilon))


def polyval(coeffs: Sequence[float], x: torch.Tensor) -> torch.Tensor:
    """Horner's scheme; the first coefficient belongs to the highest power."""
    if not isinstance(coeffs, (list, tuple)):
        raise TypeError(f"math.polyval: the coefficients must be a list, found {type(coeffs).__name__}")
    if not coeffs:
        return torch.zeros_like(x)
    total = torch.zeros_like(x)
    for c in coeffs:
        total = total * x + c
    return total


def tril(x: torch.Tensor, diagonal: int, fill_value: float) -> torch.Tensor:
    """The lower triangle of the last two dimensions, `fill_value` elsewhere."""
    inside = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril(diagonal)
    return torch.where(inside, x, torch.full((), fill_value, dtype=x.dtype, device=x.device))


def fused_scale_tril(x: torch.Tensor, diagonal: int, fill_value: float, scale: float) -> torch.Tensor:
    return tril(x * scale, diagonal, fill_value)


def gelu_grad(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Gradient of gelu (erf form) at x, times dy."""
    normal = 0.5 * (1 + torch.erf(x * 0.7071067811865476))
    return dy * (normal + x * torch.exp(-0.5 * x * x) * 0.3989422804014327)


def sigmoid_grad(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return dy * y * (1 - y)


def tanh_grad(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return dy * (1 - y * y)


def unsorted_segment_sum(
    data: torch.Tensor, segment_ids: torch.Tensor, num_segments: int, axis: int
) -> torch.Tensor:
    """Sum of the slices of `data` with the same id.

    The ids cover the dimensions axis ... axis + ids.dim() - 1.
    """
    ids = segment_ids.reshape(-1).long()
    shape = data.shape
    flat = data.reshape(*shape[:axis], ids.numel(), *shape[axis + segment_ids.dim() :])
    out = torch.zeros(
        *shape[:axis], num_segments, *flat.shape[axis + 1 :], dtype=data.dtype, device=data.device
    )
    return out.index_add(axis, ids, flat)


def unsorted_segment_sum_like(
    data: torch.Tensor, segment_ids: torch.Tensor, like: torch.Tensor, axis: int
) -> torch.Tensor:
    return unsorted_segment_sum(data, segment_ids, like.shape[axis], axis)


def unsorted_batch_segment_sum(
    data: torch.Tensor, segment_ids: torch.Tensor, num_segments: int
) -> torch.Tensor:
    """unsorted_segment_sum for each entry of the leading dimensions of `segment_ids`."""
    lead = segment_ids.dim() - 1
    inner = data.shape[lead + 1 :]
    ids = segment_ids.long().reshape(*segment_ids.shape, *[1] * len(inner)).expand(*segment_ids.shape, *inner)
    out = torch.zeros(*data.shape[:lead], num_segments, *inner, dtype=data.dtype, device=data.device)
    return out.scatter_add(lead, ids, data)
