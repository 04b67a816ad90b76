"""Shapes, constants, joining and casting blobs: top-level functions of the job-function API."""

import builtins
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .._jobs import context as _context
from .._jobs import devices as _devices
from .._jobs.context import value_dependent
from ..distribute import assert_is_valid_distribute
from ..nn._windows import same_pads
from .orders import takes_older_orders


def _dtype(dtype: torch.dtype | None) -> torch.dtype:
    """The dtype, or the job's default."""
    if dtype is not None:
        return dtype
    trace = _context.trace()
    return torch.float32 if trace is None else trace.job.config.default_dtype


def _device() -> torch.device:
    trace = _context.trace()
    return torch.device("cpu") if trace is None else _devices.current(trace.job)


# ---------------------------------------------------------------- constants
def constant(
    value: float,
    dtype: torch.dtype | None = None,
    shape: int | Sequence[int] | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """A blob of `shape` (one element if None) filled with `value`.

    Without a dtype the blob is float32 or, if `value` is not a float, int32.
    """
    if dtype is None:
        dtype = torch.float32 if isinstance(value, float) else torch.int32
    shape = (1,) if shape is None else ((shape,) if isinstance(shape, int) else tuple(shape))
    return torch.full(shape, value, dtype=dtype, device=_device())


def constant_scalar(value: float, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
    return constant(value, dtype, (1,))


def constant_like(
    like: torch.Tensor, value: float, dtype: torch.dtype | None = None, name: str | None = None
) -> torch.Tensor:
    return torch.full_like(like, value, dtype=dtype or like.dtype, requires_grad=False)


def zeros(shape: Sequence[int], dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
    return constant(0, _dtype(dtype), shape)


def ones(shape: Sequence[int], dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
    return constant(1, _dtype(dtype), shape)


def zeros_like(like: torch.Tensor, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
    return torch.zeros_like(like, dtype=dtype)


def ones_like(like: torch.Tensor, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
    return torch.ones_like(like, dtype=dtype)


def range(
    start: float,
    limit: float | None = None,
    delta: float = 1,
    dtype: torch.dtype | None = None,
    name: str = "range",
) -> torch.Tensor:
    """Values start, start + delta, ... below `limit`; a single bound means 0 up to it.

    Without a dtype the blob is int64 if start, limit and delta are ints, else float32.
    """
    if limit is None:
        start, limit = 0, start
    whole = isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int)
    return torch.arange(
        start, limit, delta, dtype=dtype or (torch.int64 if whole else torch.float32), device=_device()
    )


# ---------------------------------------------------------------- shapes
def reshape(x: torch.Tensor, shape: int | Sequence[int], name: str | None = None) -> torch.Tensor:
    return torch.reshape(x, tuple(shape) if not isinstance(shape, int) else (shape,))


def reshape_like(x: torch.Tensor, like: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return torch.reshape(x, like.shape)


def dynamic_reshape(x: torch.Tensor, shape: Sequence[int], name: str | None = None) -> torch.Tensor:
    return torch.reshape(x, tuple(shape))


@takes_older_orders("transpose")
def transpose(
    a: torch.Tensor,
    perm: Sequence[int] | None = None,
    conjugate: bool = False,
    batch_axis_non_change: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    """Dimensions in the order `perm`, reversed if None."""
    if conjugate:
        raise NotImplementedError(
            "transpose(conjugate=True): OneFlow had no complex blobs; conjugate with torch.conj"
        )
    return torch.permute(a, tuple(reversed(_dims(a))) if perm is None else tuple(perm))


def _dims(a: torch.Tensor) -> list[int]:
    return list(builtins.range(a.dim()))


def flatten(
    input: torch.Tensor, start_dim: int = 0, end_dim: int = -1, name: str | None = None
) -> torch.Tensor:
    return torch.flatten(input, start_dim, end_dim)


def squeeze(
    input: torch.Tensor, axis: int | Sequence[int] | None = None, name: str | None = None
) -> torch.Tensor:
    """Drop dimensions of size 1: those of `axis` (an int or a sequence of ints), or all."""
    if axis is None:
        return torch.squeeze(input)
    chosen = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in chosen:
        if input.shape[a] != 1:
            raise ValueError(
                f"squeeze: dimension {a} has size {input.shape[a]}, not 1 (shape {tuple(input.shape)})"
            )
    return torch.squeeze(input, chosen)


def expand_dims(input: torch.Tensor, axis: int, name: str | None = None) -> torch.Tensor:
    return torch.unsqueeze(input, axis)


def expand(x: torch.Tensor, expand_size: Sequence[int], name: str | None = None) -> torch.Tensor:
    return x.expand(*expand_size)


def broadcast_like(
    x: torch.Tensor, like: torch.Tensor, broadcast_axes: Sequence[int] | None = None, name: str | None = None
) -> torch.Tensor:
    """Expand x to the shape of `like` along `broadcast_axes`, where x has size 1 or lacks the dimension."""
    if broadcast_axes is not None and x.dim() != like.dim() and x.numel() != 1:
        for a in sorted(a % like.dim() for a in broadcast_axes):
            x = x.unsqueeze(a)
    return x.expand(like.shape)


def broadcast_to_compatible_with(
    x: torch.Tensor, compatible: Sequence[torch.Tensor], name: str | None = None
) -> torch.Tensor:
    """x broadcast with the shapes of the blobs in the list `compatible`."""
    if not isinstance(compatible, (list, tuple)):
        raise TypeError(
            "broadcast_to_compatible_with: `compatible` takes a list of blobs, found"
            f" {type(compatible).__name__}"
        )
    return x.expand(torch.broadcast_shapes(x.shape, *[c.shape for c in compatible]))


def identity(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return x


def copy(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return x.clone()


def identity_n(inputs: Sequence[torch.Tensor], name: str | None = None) -> list[torch.Tensor]:
    return list(inputs)


def amp_white_identity(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return x


def cast_to_static_shape(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    return x


def cast_to_current_logical_view(x: torch.Tensor) -> torch.Tensor:
    return x


def parallel_cast(
    input: torch.Tensor, name: str | None = None, distribute: Any = None, gradient_distribute: Any = None
) -> torch.Tensor:
    """The blob itself: one device holds all. The distributions are checked."""
    assert_is_valid_distribute(distribute)
    assert_is_valid_distribute(gradient_distribute)
    return input


@takes_older_orders("hierarchical_parallel_cast")
def hierarchical_parallel_cast(
    input: torch.Tensor,
    nd_sbp: Sequence[str],
    grad_mode: str | None = None,
    grad_nd_sbp: Sequence[str] | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """The blob itself: one device holds all. The rules ("B", "S(0)", "P") are checked."""
    import re

    for rule in [*(nd_sbp or ()), *(grad_nd_sbp or ())]:
        if not isinstance(rule, str) or not re.fullmatch(r"B|P|S\(\d+\)", rule):
            raise ValueError(f'hierarchical_parallel_cast: a rule is "B", "P" or "S(axis)", found {rule!r}')
    return input


def cast(x: torch.Tensor, dtype: torch.dtype, name: str | None = None) -> torch.Tensor:
    return x.to(dtype)


# ---------------------------------------------------------------- joining and splitting
@takes_older_orders("concat")
def concat(
    inputs: int | Sequence[torch.Tensor] | None = None,
    axis: int = 0,
    max_dim_size: Any = None,
    name: str | None = None,
    values: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """Join along the axis.

    `values` is the older name of `inputs`; both orders of (values, axis) were in use.
    """
    if values is not None:
        inputs = values
    if isinstance(inputs, int):
        inputs, axis = axis, inputs
    if inputs is None:
        raise TypeError("concat: give the list of blobs to join")
    return torch.cat(list(inputs), axis)


def stack(
    inputs: torch.Tensor | Sequence[torch.Tensor], axis: int = 0, name: str | None = None
) -> torch.Tensor:
    return torch.stack([inputs] if isinstance(inputs, torch.Tensor) else list(inputs), axis)


def reverse(input: torch.Tensor, axis: int | Sequence[int], name: str | None = None) -> torch.Tensor:
    return torch.flip(input, (axis,) if isinstance(axis, int) else tuple(axis))


@takes_older_orders("sort")
def sort(
    input: torch.Tensor, axis: int = -1, direction: str = "ASCENDING", name: str | None = None
) -> torch.Tensor:
    return torch.sort(input, axis, descending=_descending(direction))[0]


@takes_older_orders("argsort")
def argsort(
    input: torch.Tensor, axis: int = -1, direction: str = "ASCENDING", name: str | None = None
) -> torch.Tensor:
    """Indices (int32) that sort along the axis."""
    return torch.argsort(input, dim=axis, descending=_descending(direction), stable=True).to(torch.int32)


def _descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f'direction must be "ASCENDING" or "DESCENDING", found {direction!r}')
    return direction == "DESCENDING"


def elem_cnt(inputs: torch.Tensor, dtype: torch.dtype | None = None, name: str | None = None) -> torch.Tensor:
    return torch.full((), inputs.numel(), dtype=dtype or torch.int32, device=inputs.device)


# ---------------------------------------------------------------- bounds, matrices, padding
def clip_by_value(
    values: torch.Tensor,
    min_value: float | None = None,
    max_value: float | None = None,
    name: str | None = None,
) -> torch.Tensor:
    if min_value is None and max_value is None:
        raise ValueError("clip_by_value: give min_value or max_value")
    if not values.is_floating_point():  # integer blobs need integer bounds
        min_value, max_value = (b if b is None else int(b) for b in (min_value, max_value))
    return torch.clamp(values, min_value, max_value)


clamp = clip = clip_by_scalar = clip_by_value


@takes_older_orders("linalg.matmul")
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> torch.Tensor:
    a = a.transpose(-1, -2) if transpose_a else a
    b = b.transpose(-1, -2) if transpose_b else b
    out = torch.matmul(a, b)
    return out if alpha == 1.0 else out * alpha


def diag(input: torch.Tensor, diagonal: int = 0, name: str | None = None) -> torch.Tensor:
    return torch.diag(input, diagonal)


def pad(
    x: torch.Tensor, paddings: Sequence[Any], constant_value: float = 0, name: str | None = None
) -> torch.Tensor:
    """`paddings`: one (before, after) per dimension of x."""
    return F.pad(x, _torch_pads(x, paddings), value=constant_value)


def pad_grad(
    x: torch.Tensor, paddings: Sequence[Any], constant_value: float = 0, name: str | None = None
) -> torch.Tensor:
    """The gradient of `pad`: x without its borders."""
    return F.pad(x, [-p for p in _torch_pads(x, paddings)])


def _torch_pads(x: torch.Tensor, paddings: Sequence[Any]) -> list[int]:
    if len(paddings) != x.dim():
        raise ValueError(f"pad: {len(paddings)} pairs given for a blob of {x.dim()} dimensions")
    return [p for pair in reversed(list(paddings)) for p in pair]


def _pads4(padding: int | Sequence[int]) -> list[int]:
    """(left, right, top, bottom) of an int or a sequence of four (a pair means (height, width))."""
    if isinstance(padding, int):
        return [padding] * 4
    padding = list(padding)
    if len(padding) == 2:
        return [padding[1], padding[1], padding[0], padding[0]]
    if len(padding) != 4:
        raise ValueError(
            f"padding must be an int, a pair or four numbers (left, right, top, bottom), found {padding}"
        )
    return padding


def constant_pad2d(
    x: torch.Tensor, padding: Sequence[int], constant_value: float = 0, name: str | None = None
) -> torch.Tensor:
    return F.pad(x, _pads4(padding), value=constant_value)


def zero_pad2d(x: torch.Tensor, padding: int, name: str | None = None) -> torch.Tensor:
    return F.pad(x, _pads4(padding))


def reflection_pad2d(x: torch.Tensor, padding: Sequence[int], name: str | None = None) -> torch.Tensor:
    return F.pad(x, _pads4(padding), mode="reflect")


def replication_pad2d(x: torch.Tensor, padding: Sequence[int], name: str | None = None) -> torch.Tensor:
    return F.pad(x, _pads4(padding), mode="replicate")


def same_padding(
    x: torch.Tensor,
    padding: str,
    data_format: str,
    kernel_size: Sequence[int],
    strides: Sequence[int],
    dilation_rate: Sequence[int],
    name: str | None = None,
) -> torch.Tensor:
    """Pad x with zeros so that a window operation gives ceil(size / stride).

    If the padding is odd, "same_lower" puts the extra zero before x.
    """
    spatial = _dims(x)[1:-1] if data_format.upper().endswith("C") else _dims(x)[2:]
    pads: list[tuple[int, ...]] = [(0, 0)] * x.dim()
    for i, a in enumerate(spatial):
        pads[a] = same_pads(
            x.shape[a], kernel_size[i], strides[i], dilation_rate[i], padding.lower() == "same_lower"
        )
    return pad(x, pads)


def count_not_finite(x: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Count the elements that are inf or nan, as an int64 blob of shape (1,)."""
    return (~torch.isfinite(x)).sum().reshape(1)


def multi_count_not_finite(x: Any = None, name: str | None = None) -> Any:
    return sum(count_not_finite(t) for t in x)


def smooth_l1_loss(
    prediction: torch.Tensor, label: torch.Tensor, beta: float = 1.0, name: str | None = None
) -> torch.Tensor:
    return (
        F.smooth_l1_loss(prediction, label, reduction="none", beta=beta)
        if beta > 0
        else (prediction - label).abs()
    )


def masked_fill(x: torch.Tensor, mask: torch.Tensor, value: float, name: str | None = None) -> torch.Tensor:
    return torch.where(mask != 0, torch.full((), value, dtype=x.dtype, device=x.device), x)


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    """The lengths are read on the host: the job runs op by op."""
    value_dependent("ctc_loss")
    return F.ctc_loss(
        log_probs,
        targets.long(),
        input_lengths.long(),
        target_lengths.long(),
        blank,
        reduction,
        zero_infinity,
    )


def combined_margin_loss(
    x: torch.Tensor, label: torch.Tensor, m1: float = 1, m2: float = 0, m3: float = 0, name: str | None = None
) -> torch.Tensor:
    """cos(m1 * theta + m2) - m3 on the logit of the label, x elsewhere (theta = acos(x))."""
    chosen = F.one_hot(label.long(), x.shape[1]).bool()
    theta = torch.acos(torch.where(chosen, x, torch.zeros_like(x)))
    return torch.where(chosen, torch.cos(theta * m1 + m2) - m3, x)
