"""Shapes (fake kernels) and gradients of the operators in csrc/ops.cpp, registered when the library is
loaded.

With create_graph=True, a gradient is computed by the plain-torch function instead, so that it can be
differentiated again.
"""

from __future__ import annotations

import types
import warnings

import torch

# enum Point of csrc/cpu/kernels.h
POINT = {
    name: i
    for i, name in enumerate(
        """
quick_gelu quick_gelu_backward square_relu square_relu_backward fast_gelu_mul fast_gelu_mul_backward
boxes_coord boxes_coord_backward
intersection intersection_backward iou iou_backward convex convex_backward center_dist center_dist_backward
angle angle_backward
ciou ciou_backward fake_quantize
""".split()
    )
}
_NAME = {i: name for name, i in POINT.items()}
_DIFFERENTIABLE = frozenset(name for name in POINT if name + "_backward" in POINT)


run = types.SimpleNamespace()  # the operators as the public functions call them; filled by register()
_below = torch._C._AutoDispatchBelowAutograd


def point(name, inputs, outputs, scalars=()):
    """The outputs of an elementwise operator; inputs are broadcast and made contiguous here."""
    if any(t.shape != inputs[0].shape for t in inputs):
        inputs = torch.broadcast_tensors(*inputs)
    return run.pointwise(POINT[name], list(inputs), outputs, [float(s) for s in scalars])


def _again(function, inputs, grads):
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
def _plain(name, scalars):
    from . import activation, boxes

    return {
        "quick_gelu": activation.quick_gelu_ref,
        "square_relu": activation.square_relu_ref,
        "fast_gelu_mul": activation.fused_fast_gelu_mul_ref,
        "boxes_coord": boxes.coord_ref,
        "intersection": boxes.intersection_ref,
        "iou": lambda *x: boxes.iou_ref(*x, *scalars),
        "convex": lambda *x: boxes.convex_ref(*x, *scalars),
        "center_dist": boxes.center_dist_ref,
        "angle": lambda *x: boxes.angle_ref(*x, *scalars),
        "ciou": lambda *x: boxes.ciou_ref(*x, *scalars)[:1],
    }[name]


def _point_setup(ctx, inputs, output):
    op, tensors, _, ctx.scalars = inputs
    ctx.name = _NAME[op]
    if ctx.name == "boxes_coord":
        tensors = tensors[:1]
    ctx.save_for_backward(*tensors, *(output[1:] if ctx.name == "ciou" else ()))


def _point_backward(ctx, grads):
    return (
        None,
        list(_point_grads(ctx, grads)),
        None,
        None if ctx.scalars else [],
    )  # an empty list counts as a list of tensors


def _point_grads(ctx, grads):
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
def _bias_sum(dx, axis):
    """The gradient of a 1-d bias along `axis`."""
    return dx.sum([d for d in range(dx.ndim) if d != axis])


def _gelu_setup(ctx, inputs, output):
    x, bias, ctx.axis = inputs
    ctx.save_for_backward(x, bias)


def _gelu_backward(ctx, dy):
    x, bias = ctx.saved_tensors
    if torch.is_grad_enabled():
        from .activation import fused_bias_add_gelu_ref

        return *_again(lambda a, b: fused_bias_add_gelu_ref(a, b, ctx.axis), (x, bias), (dy,)), None
    if x.device.type == "cpu" and ctx.needs_input_grad[1]:
        dx, sums = run.bias_gelu_backward_sums(dy, x, bias, ctx.axis)
        return dx, sums.sum(0).to(bias.dtype), None
    dx = run.bias_gelu_backward(dy, x, bias, ctx.axis)
    return dx, _bias_sum(dx, ctx.axis) if ctx.needs_input_grad[1] else None, None


def _dropout_setup(ctx, inputs, output):
    _, _, ctx.axis, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _dropout_backward(ctx, dy):
    (seed,) = ctx.saved_tensors
    if dy.device.type == "cpu" and ctx.needs_input_grad[1] and not torch.is_grad_enabled():
        dx, sums = run.bias_dropout_backward_sums(dy, ctx.axis, ctx.p, seed)
        return dx, sums.sum(0).to(dy.dtype), None, None, None
    dx = run.bias_dropout_backward(dy, ctx.p, seed)
    return dx, _bias_sum(dx, ctx.axis) if ctx.needs_input_grad[1] else None, None, None, None


def _sums_fake(x, axis):
    """(like x, the parts of the bias's gradient): see csrc/cpu/register.cpp fresh_sums."""
    last = axis == x.ndim - 1 or x.shape[axis + 1 :].numel() == 1
    parts = (x.shape[:axis].numel() + 63) // 64 if last else x.shape[:axis].numel()
    return x.new_empty(x.shape), x.new_empty(
        (parts, x.shape[axis]), dtype=torch.float32 if x.dtype is torch.bfloat16 else x.dtype
    )


def _dropout_backward_setup(ctx, inputs, output):
    _, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _dropout_backward_backward(ctx, grad):  # linear in dy, so its own gradient is itself
    return run.bias_dropout_backward(grad, ctx.p, *ctx.saved_tensors), None, None


# --------------------------------------------------------------------------- softmax
def _softmax_fake(x, mask, diagonal, scale, fill, p, seed):
    y = x.new_empty(x.shape)
    return y, x.new_empty(x.shape if p > 0 else (0,))


def _softmax_setup(ctx, inputs, output):
    _, mask, ctx.diagonal, ctx.scale, _, ctx.p, seed = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(mask, seed, output[0])


def _softmax_backward(ctx, dy, ddropped):
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


def _tril_setup(ctx, inputs, output):
    _, ctx.diagonal, ctx.scale, _ = inputs


def _tril_backward(ctx, dy):
    return run.scale_tril(dy, ctx.diagonal, ctx.scale, 0.0), None, None, None


# --------------------------------------------------------------------------- rotary, dots
def _rotary_fake(x, cos, sin, parts, interval, order, backward):
    return x.new_empty([x.shape[d] for d in order])


def _rotary_setup(ctx, inputs, output):
    _, cos, sin, ctx.parts, ctx.interval, ctx.order, ctx.flipped = inputs
    ctx.save_for_backward(cos, sin)


def _rotary_backward(ctx, dy):
    back = [ctx.order.index(d) for d in range(4)]
    dx = run.rotary(
        dy.permute(back), *ctx.saved_tensors, ctx.parts, ctx.interval, [0, 1, 2, 3], not ctx.flipped
    )
    return dx, None, None, None, None, None, None


def _dots_setup(ctx, inputs, output):
    x, ctx.self_interaction = inputs
    ctx.save_for_backward(x)


def _dots_backward(ctx, dout):
    (x,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        from .recommender import fused_dot_feature_interaction_ref

        return (
            _again(
                lambda x: fused_dot_feature_interaction_ref(x, None, ctx.self_interaction, 0), (x,), (dout,)
            )[0],
            None,
        )
    return run.pair_dots_backward(dout, x, ctx.self_interaction), None


# --------------------------------------------------------------------------- detection
def _roi_setup(ctx, inputs, output):
    x, rois, ctx.scale, _, _, ctx.ratio, ctx.aligned = inputs
    ctx.shape = list(x.shape)
    ctx.save_for_backward(rois)


def _roi_backward(ctx, dy):
    dx = run.roi_align_backward(dy, *ctx.saved_tensors, ctx.shape, ctx.scale, ctx.ratio, ctx.aligned)
    return dx, None, None, None, None, None, None


def _deform_setup(ctx, inputs, output):
    x, offset, mask, *ctx.how = inputs
    ctx.save_for_backward(x, offset, mask)


def _deform_backward(ctx, dcolumns):
    x, offset, mask = ctx.saved_tensors
    if torch.is_grad_enabled():
        from .detection import deform_columns_ref

        grads = _again(lambda x, o, m: deform_columns_ref(x, o, m, *ctx.how), (x, offset, mask), (dcolumns,))
    else:
        grads = run.deform_columns_backward(dcolumns, x, offset, mask, *ctx.how)
    return grads[0], grads[1], grads[2] if mask is not None else None, None, None, None, None, None


def _lstm_fake(x, weight, h0, c0, reverse):
    sizes = (*x.shape[:2], h0.shape[1])
    return x.new_empty(sizes), h0.new_empty(h0.shape), c0.new_empty(c0.shape), x.new_empty(5, *sizes)


def _gru_backward_fake(dhidden, dlast, hidden, work, h0, weight, reverse):
    gates = (*hidden.shape[:2], 3 * hidden.shape[2])
    return hidden.new_empty(gates), hidden.new_empty(gates), h0.new_empty(h0.shape)


def _convolution_fake(x, weight, *window):
    sizes = zip(x.shape[2:], weight.shape[2:], window[:2], window[2:4], window[4:])
    return x.new_empty(
        x.shape[0],
        weight.shape[0],
        *(
            (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
            for n, k, stride, padding, dilation in sizes
        ),
    )


def _unique_fake(keys, values):
    n = keys.numel()
    return (
        keys.new_empty(1, dtype=torch.int32),
        keys.new_empty(n),
        values.new_empty(n),
        keys.new_empty(n, dtype=torch.int32),
    )


FAKES = {
    "pointwise": lambda op, inputs, outputs, scalars: [
        inputs[0].new_empty(inputs[0].shape) for _ in range(outputs)
    ],
    "fake_quantize": lambda x, scale, zero_point, low, high: x.new_empty(x.shape),
    "bias_gelu": lambda x, bias, axis: x.new_empty(x.shape),
    "bias_gelu_backward": lambda dy, x, bias, axis: x.new_empty(x.shape),
    "bias_gelu_backward_sums": lambda dy, x, bias, axis: _sums_fake(x, axis),
    "bias_dropout": lambda x, bias, axis, p, seed: x.new_empty(x.shape),
    "bias_dropout_backward": lambda dy, p, seed: dy.new_empty(dy.shape),
    "bias_dropout_backward_sums": lambda dy, axis, p, seed: _sums_fake(dy, axis),
    "masked_softmax": _softmax_fake,
    "masked_softmax_backward": lambda dy, ddropped, y, mask, diagonal, scale, p, seed: y.new_empty(y.shape),
    "scale_tril": lambda x, diagonal, scale, fill: x.new_empty(x.shape),
    "rotary": _rotary_fake,
    "pair_dots": lambda x, self_interaction: x.new_empty(
        x.shape[0], x.shape[1] * (x.shape[1] + (1 if self_interaction else -1)) // 2
    ),
    "pair_dots_backward": lambda dout, x, self_interaction: x.new_empty(x.shape),
    "lstm": _lstm_fake,
    "lstm_backward": lambda dhidden, dlast, dcell, work, c0, weight, reverse: (
        work.new_empty(*work.shape[1:3], 4 * work.shape[3]),
        c0.new_empty(c0.shape),
        c0.new_empty(c0.shape),
    ),
    "rnn": lambda x, weight, bias, h0, relu, reverse: x.new_empty(x.shape),
    "rnn_backward": lambda dhidden, dlast, hidden, weight, relu, reverse: hidden.new_empty(hidden.shape),
    "gru": lambda x, weight, bias, h0, reverse: (
        x.new_empty(*x.shape[:2], h0.shape[1]),
        x.new_empty(*x.shape[:2], 4 * h0.shape[1]),
    ),
    "gru_backward": _gru_backward_fake,
    "mm": lambda a, b: a.new_empty(a.shape[0], b.shape[1]),
    "bmm": lambda a, b: a.new_empty(*a.shape[:2], b.shape[2]),
    "convolution": _convolution_fake,
    "convolution_backward_input": lambda dy, weight, h, w, *window: dy.new_empty(
        dy.shape[0], weight.shape[1], h, w
    ),
    "convolution_backward_weight": lambda dy, x, kh, kw, *window: x.new_empty(
        dy.shape[1], x.shape[1], kh, kw
    ),
    "adam_": lambda model, diff, m, v, scalars: None,
    "momentum_": lambda model, diff, buffer, scalars: None,
    "sgd_": lambda model, diff, scalars: None,
    "blocks_": lambda written, read, lanes, code, common, own: None,
    "crop_mirror_normalize": lambda images, mirror, top, left, mean, scale, out: None,
    "nms_mask": lambda boxes, iou_threshold, keep_n: boxes.new_empty(boxes.shape[0], dtype=torch.int8),
    "roi_align": lambda x, rois, scale, h, w, ratio, aligned: x.new_empty(rois.shape[0], x.shape[1], h, w),
    "roi_align_backward": lambda dy, rois, x_shape, scale, ratio, aligned: dy.new_empty(x_shape),
    "deform_columns": lambda x, offset, mask, kernel, *how: x.new_empty(
        *x.shape[:2], kernel[0] * kernel[1], *offset.shape[2:]
    ),
    "deform_columns_backward": lambda d, x, offset, mask, *how: (
        x.new_empty(x.shape),
        offset.new_empty(offset.shape),
        x.new_empty(0) if mask is None else mask.new_empty(mask.shape),
    ),
    "ctc_greedy_decode": lambda log_probs, lengths, merge: (
        log_probs.new_empty(log_probs.shape[1], log_probs.shape[0], dtype=torch.int64),
        log_probs.new_empty(log_probs.shape[1], 1),
    ),
    "unique_pairs": _unique_fake,
}

AUTOGRAD = {
    "pointwise": (_point_setup, _point_backward),
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


def _callable(name):
    """Return the operator without torch.library's Python wrapper around its gradient. If no gradient is
    needed, the call runs below autograd; otherwise it is an autograd.Function of the same two functions.
    (torch's stable ABI has no autograd to register in C++.)
    """
    op = getattr(torch.ops.oneflow, name).default._op
    if name not in AUTOGRAD:
        return op
    setup, gradient = AUTOGRAD[name]

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            with _below():
                out = op(*args)
            setup(ctx, args, out)
            return out

        backward = staticmethod(gradient)

    apply, wanted = Kernel.apply, torch._C._any_requires_grad

    def call(*args):
        if torch.is_grad_enabled() and wanted(*args):
            return apply(*args)
        with _below():
            return op(*args)

    return call


def _pointwise_callable():
    """Do the same as _callable for torch.ops.oneflow.pointwise, whose list of inputs autograd.Function needs
    as separate arguments.
    """
    op, any_requires_grad = getattr(torch.ops.oneflow, "pointwise").default._op, torch._C._any_requires_grad

    class Pointwise(torch.autograd.Function):
        @staticmethod
        def forward(ctx, point, outputs, scalars, *inputs):
            ctx.set_materialize_grads(False)
            with _below():
                out = op(point, list(inputs), outputs, scalars)
            _point_setup(ctx, (point, inputs, outputs, scalars), out)
            return tuple(out)

        @staticmethod
        def backward(ctx, *grads):
            return None, None, None, *_point_grads(ctx, grads)

    def call(point, inputs, outputs, scalars):
        if torch.is_grad_enabled() and any_requires_grad(*inputs):
            return Pointwise.apply(point, outputs, scalars, *inputs)
        with _below():
            return op(point, inputs, outputs, scalars)

    return call


# --------------------------------------------------------------------------- determinism
# The CUDA kernels that add floating values by atomics, in an order that differs from run to run.
NOT_DETERMINISTIC_ON_CUDA = ("roi_align_backward", "deform_columns_backward")
_library = torch.library.Library("oneflow", "FRAGMENT")


def _alert_not_deterministic(name):
    """The error or warning of torch's alertNotDeterministic, which the stable ABI lacks."""
    message = (
        f"oneflow::{name} on CUDA does not have a deterministic implementation, but you set"
        " 'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation,"
        " or you can use the 'warn_only=True' option, if that's acceptable for your application."
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=2)


def _register_alert(name):
    """Check before each call of a CUDA kernel, whoever calls the operator, whether it must be
    deterministic.
    """
    op = getattr(torch.ops.oneflow, name).default

    def call(keys, *args):
        if torch.are_deterministic_algorithms_enabled() and args[0].device.type == "cuda":
            _alert_not_deterministic(name)
        return op.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args)

    _library.impl(name, call, "ADInplaceOrView", with_keyset=True)


def register():
    """Register everything above; called once, after the library is loaded."""
    for name, fake in FAKES.items():
        torch.library.register_fake(f"oneflow::{name}", fake)
    for name, (setup, backward) in AUTOGRAD.items():
        torch.library.register_autograd(f"oneflow::{name}", backward, setup_context=setup)
    for name in NOT_DETERMINISTIC_ON_CUDA:
        _register_alert(name)
    for name in FAKES:
        setattr(run, name, _callable(name) if name != "pointwise" else _pointwise_callable())
