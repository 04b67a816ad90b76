"""Gradients of the operators in csrc/ops.cpp.

With create_graph=True, a gradient is computed by the plain-torch function instead, so that it can be
differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import references
from .kernels import POINT, POINT_NAMES, point, run

Context = Any  # torch's ctx of an autograd function, with attributes of ours
Inputs = tuple[Any, ...]  # the arguments of an operator
Gradients = tuple[torch.Tensor | None, ...]  # a gradient for each argument of an operator

_DIFFERENTIABLE = frozenset(name for name in POINT if name + "_backward" in POINT)


def _again(
    function: Callable[..., Any], inputs: Sequence[Any], grads: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Compute differentiable gradients of function(*inputs) by running it again under autograd."""
    with torch.enable_grad():
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        differentiable = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        input_grads = iter(
            torch.autograd.grad(
                [o for o, _ in pairs],
                differentiable,
                [g for _, g in pairs],
                create_graph=True,
                allow_unused=True,
            )
        )
    return [next(input_grads) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in inputs]


# --------------------------------------------------------------------------- elementwise
def _plain(name: str, scalars: Sequence[float]) -> Callable[..., Any]:
    plain: dict[str, Callable[..., Any]] = {
        "quick_gelu": references.quick_gelu_ref,
        "square_relu": references.square_relu_ref,
        "fast_gelu_mul": references.fused_fast_gelu_mul_ref,
        "boxes_coord": references.coord_ref,
        "intersection": references.intersection_ref,
        "iou": lambda *x: references.iou_ref(*x, *scalars),
        "convex": lambda *x: references.convex_ref(*x, *scalars),
        "center_dist": references.center_dist_ref,
        "angle": lambda *x: references.angle_ref(*x, *scalars),
        "ciou": lambda *x: references.ciou_ref(*x, *scalars)[:1],
    }
    return plain[name]


def point_setup(ctx: Context, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:
    op, tensors, _, ctx.scalars = inputs
    ctx.name = POINT_NAMES[op]
    if ctx.name == "boxes_coord":
        tensors = tensors[:1]
    ctx.save_for_backward(*tensors, *(output[1:] if ctx.name == "ciou" else ()))


def _point_backward(ctx: Context, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    # an empty list counts as a list of tensors
    return (
        None,
        list(point_gradients(ctx, grads)),
        None,
        None if ctx.scalars else [],
    )


def point_gradients(ctx: Context, grads: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
    name, saved = ctx.name, ctx.saved_tensors
    if name not in _DIFFERENTIABLE:
        raise NotImplementedError(
            f"oneflow::pointwise: the elementwise operator {name!r} has no gradient, found an input that"
            " requires one"
        )
    if name == "boxes_coord":
        # linear, so it serves its own gradient too
        return point(
            "boxes_coord_backward", [torch.zeros_like(saved[0]) if g is None else g for g in grads], 8
        )
    inputs = saved[:4] if name == "ciou" else saved
    dy = grads[0]
    if dy is None:
        return [None] * len(inputs)
    if torch.is_grad_enabled():
        return _again(_plain(name, ctx.scalars), inputs, [dy])
    if name == "ciou":
        _, _, rho2, c2, alpha = saved
        return point("ciou_backward", (alpha, rho2, c2, dy), 4)
    if name == "center_dist":
        a, b, c, d = point("center_dist_backward", (*saved, dy), 4)
        return a, a, b, b, c, c, d, d
    return point(name + "_backward", (*saved, dy), len(saved), ctx.scalars)


# --------------------------------------------------------------------------- bias
def bias_sum(dx: torch.Tensor, axis: int) -> torch.Tensor:
    """The gradient of a 1-d bias along `axis`."""
    return dx.sum([d for d in range(dx.ndim) if d != axis])


def _gelu_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    x, bias, ctx.axis = inputs
    ctx.save_for_backward(x, bias)


def _gelu_backward(ctx: Context, dy: torch.Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    if torch.is_grad_enabled():
        return *_again(
            lambda a, b: references.fused_bias_add_gelu_ref(a, b, ctx.axis), (x, bias), (dy,)
        ), None
    if x.device.type == "cpu" and ctx.needs_input_grad[1]:
        dx, sums = run.bias_gelu_backward_sums(dy, x, bias, ctx.axis)
        return dx, sums.sum(0).to(bias.dtype), None
    dx = run.bias_gelu_backward(dy, x, bias, ctx.axis)
    return dx, bias_sum(dx, ctx.axis) if ctx.needs_input_grad[1] else None, None


def _dropout_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    _, _, ctx.axis, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _dropout_backward(ctx: Context, dy: torch.Tensor) -> Gradients:
    (seed,) = ctx.saved_tensors
    if dy.device.type == "cpu" and ctx.needs_input_grad[1] and not torch.is_grad_enabled():
        dx, sums = run.bias_dropout_backward_sums(dy, ctx.axis, ctx.p, seed)
        return dx, sums.sum(0).to(dy.dtype), None, None, None
    dx = run.bias_dropout_backward(dy, ctx.p, seed)
    return dx, bias_sum(dx, ctx.axis) if ctx.needs_input_grad[1] else None, None, None, None


def _dropout_backward_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    _, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _dropout_backward_backward(
    ctx: Context, grad: torch.Tensor
) -> Gradients:  # linear in dy, so its own gradient is itself
    return run.bias_dropout_backward(grad, ctx.p, *ctx.saved_tensors), None, None


# --------------------------------------------------------------------------- softmax
def _softmax_setup(ctx: Context, inputs: Inputs, output: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, mask, ctx.diagonal, ctx.scale, _, ctx.p, seed = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(mask, seed, output[0])


def _softmax_backward(ctx: Context, dy: torch.Tensor | None, ddropped: torch.Tensor | None) -> Gradients:
    mask, seed, y = ctx.saved_tensors
    ddropped = ddropped if ctx.p > 0 else None
    if dy is None and ddropped is None:
        return (None,) * 7
    if not torch.is_grad_enabled():
        return (
            run.masked_softmax_backward(dy, ddropped, y, mask, ctx.diagonal, ctx.scale, ctx.p, seed),
            None,
            None,
            None,
            None,
            None,
            None,
        )
    if ddropped is not None:
        through = run.bias_dropout_backward(ddropped, ctx.p, seed)
        dy = through if dy is None else dy + through
    keep = (
        torch.ones(y.shape[-2:], dtype=torch.bool, device=y.device).tril(ctx.diagonal)
        if mask is None
        else mask
    )
    return (
        torch.where(keep, ctx.scale * y * (dy - (dy * y).sum(-1, keepdim=True)), 0),
        None,
        None,
        None,
        None,
        None,
        None,
    )


def _tril_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    _, ctx.diagonal, ctx.scale, _ = inputs


def _tril_backward(ctx: Context, dy: torch.Tensor) -> Gradients:
    return run.scale_tril(dy, ctx.diagonal, ctx.scale, 0.0), None, None, None


# --------------------------------------------------------------------------- rotary, dots
def _rotary_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    _, cos, sin, ctx.parts, ctx.interval, ctx.order, ctx.flipped = inputs
    ctx.save_for_backward(cos, sin)


def _rotary_backward(ctx: Context, dy: torch.Tensor) -> Gradients:
    back = [ctx.order.index(d) for d in range(4)]
    dx = run.rotary(
        dy.permute(back), *ctx.saved_tensors, ctx.parts, ctx.interval, [0, 1, 2, 3], not ctx.flipped
    )
    return dx, None, None, None, None, None, None


def _dots_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    x, ctx.self_interaction = inputs
    ctx.save_for_backward(x)


def _dots_backward(ctx: Context, dout: torch.Tensor) -> Gradients:
    (x,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        return (
            _again(
                lambda x: references.fused_dot_feature_interaction_ref(x, None, ctx.self_interaction, 0),
                (x,),
                (dout,),
            )[0],
            None,
        )
    return run.pair_dots_backward(dout, x, ctx.self_interaction), None


# --------------------------------------------------------------------------- detection
def _roi_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    x, rois, ctx.scale, _, _, ctx.ratio, ctx.aligned = inputs
    ctx.shape = list(x.shape)
    ctx.save_for_backward(rois)


def _roi_backward(ctx: Context, dy: torch.Tensor) -> Gradients:
    dx = run.roi_align_backward(dy, *ctx.saved_tensors, ctx.shape, ctx.scale, ctx.ratio, ctx.aligned)
    return dx, None, None, None, None, None, None


def _deform_setup(ctx: Context, inputs: Inputs, output: torch.Tensor) -> None:
    x, offset, mask, *ctx.how = inputs
    ctx.save_for_backward(x, offset, mask)


def _deform_backward(ctx: Context, dcolumns: torch.Tensor) -> Gradients:
    x, offset, mask = ctx.saved_tensors
    if torch.is_grad_enabled():
        grads = _again(
            lambda x, o, m: references.deform_columns_ref(x, o, m, *ctx.how), (x, offset, mask), (dcolumns,)
        )
    else:
        grads = run.deform_columns_backward(dcolumns, x, offset, mask, *ctx.how)
    return grads[0], grads[1], grads[2] if mask is not None else None, None, None, None, None, None


# operator: (function that saves for the gradient, the gradient)
AUTOGRAD: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "pointwise": (point_setup, _point_backward),
    "fake_quantize": (lambda ctx, inputs, output: None, lambda ctx, dy: (dy, None, None, None, None)),
    "bias_gelu": (_gelu_setup, _gelu_backward),
    "bias_dropout": (_dropout_setup, _dropout_backward),
    "bias_dropout_backward": (_dropout_backward_setup, _dropout_backward_backward),
    "masked_softmax": (_softmax_setup, _softmax_backward),
    "scale_tril": (_tril_setup, _tril_backward),
    "rotary": (_rotary_setup, _rotary_backward),
    "pair_dots": (_dots_setup, _dots_backward),
    "roi_align": (_roi_setup, _roi_backward),
    "deform_columns": (_deform_setup, _deform_backward),
}
