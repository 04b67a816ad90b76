"""Registration of the operators in csrc/ops.cpp with torch: shapes (fake kernels), gradients, callables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import gradients
from .gradients import Context
from .kernels import POINT_NAMES, run

_below = torch._C._AutoDispatchBelowAutograd


# --------------------------------------------------------------------------- shapes
def _sums_fake(x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(like x, the parts of the bias's gradient): see csrc/cpu/register.cpp fresh_sums."""
    last = axis == x.ndim - 1 or x.shape[axis + 1 :].numel() == 1
    parts = (x.shape[:axis].numel() + 63) // 64 if last else x.shape[:axis].numel()
    return x.new_empty(x.shape), x.new_empty(
        (parts, x.shape[axis]), dtype=torch.float32 if x.dtype is torch.bfloat16 else x.dtype
    )


def _softmax_fake(
    x: torch.Tensor,
    mask: torch.Tensor | None,
    diagonal: int,
    scale: float,
    fill: float,
    p: float,
    seed: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.new_empty(x.shape)
    return y, x.new_empty(x.shape if p > 0 else (0,))


def _rotary_fake(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    parts: int,
    interval: int,
    order: Sequence[int],
    backward: bool,
) -> torch.Tensor:
    return x.new_empty([x.shape[d] for d in order])


def _lstm_fake(
    x: torch.Tensor, weight: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, reverse: bool
) -> tuple[torch.Tensor, ...]:
    sizes = (*x.shape[:2], h0.shape[1])
    return x.new_empty(sizes), h0.new_empty(h0.shape), c0.new_empty(c0.shape), x.new_empty(5, *sizes)


def _gru_backward_fake(
    dhidden: torch.Tensor | None,
    dlast: torch.Tensor | None,
    hidden: torch.Tensor,
    work: torch.Tensor,
    h0: torch.Tensor,
    weight: torch.Tensor,
    reverse: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gates = (*hidden.shape[:2], 3 * hidden.shape[2])
    return hidden.new_empty(gates), hidden.new_empty(gates), h0.new_empty(h0.shape)


def _convolution_fake(x: torch.Tensor, weight: torch.Tensor, *window: int) -> torch.Tensor:
    sizes = zip(x.shape[2:], weight.shape[2:], window[:2], window[2:4], window[4:])
    return x.new_empty(
        x.shape[0],
        weight.shape[0],
        *(
            (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
            for n, k, stride, padding, dilation in sizes
        ),
    )


def _pointwise_fake(
    op: int, inputs: Sequence[torch.Tensor], outputs: int, scalars: Sequence[float]
) -> list[torch.Tensor]:
    if op not in POINT_NAMES:
        raise RuntimeError(f"oneflow::pointwise: op must be 0 to {len(POINT_NAMES) - 1}, found {op}")
    return [inputs[0].new_empty(inputs[0].shape) for _ in range(outputs)]


def _unique_fake(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = keys.numel()
    return (
        keys.new_empty(1, dtype=torch.int32),
        keys.new_empty(n),
        values.new_empty(n),
        keys.new_empty(n, dtype=torch.int32),
    )


FAKES: dict[str, Callable[..., Any]] = {
    "pointwise": _pointwise_fake,
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
    "exact_product": lambda addend, a, b: a.new_empty(*a.shape[:-1], b.shape[-1]),
    "product_blocks": lambda addend, a, b: [0, 0],
    "product_rules": lambda like, candidates: None,
    "product_in_blocks": lambda addend, a, b, depth: a.new_empty(*a.shape[:-1], b.shape[-1]),
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
    "blocks": lambda read, results, code, scalars: [
        torch.empty_like(read[0], memory_format=torch.contiguous_format) for _ in range(results)
    ],
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


# --------------------------------------------------------------------------- callables
def _callable(name: str) -> Callable[..., Any]:
    """Return the operator without torch.library's Python wrapper around its gradient. If no gradient is
    needed, the call runs below autograd; otherwise it is an autograd.Function of the same two functions.
    (torch's stable ABI has no autograd to register in C++.)
    """
    op = getattr(torch.ops.oneflow, name).default._op
    if name not in gradients.AUTOGRAD:
        return op
    setup, gradient = gradients.AUTOGRAD[name]

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Context, *args: Any) -> torch.Tensor:
            with _below():
                out = op(*args)
            setup(ctx, args, out)
            return out

        backward = staticmethod(gradient)

    apply, any_requires_grad = Kernel.apply, torch._C._any_requires_grad

    def call(*args: Any) -> Any:
        if torch.is_grad_enabled() and any_requires_grad(*args):
            return apply(*args)
        with _below():
            return op(*args)

    return call


def _pointwise_callable() -> Callable[..., Any]:
    """Do the same as _callable for torch.ops.oneflow.pointwise, whose list of inputs autograd.Function needs
    as separate arguments.
    """
    op, any_requires_grad = torch.ops.oneflow.pointwise.default._op, torch._C._any_requires_grad

    class Pointwise(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Context, point: int, outputs: int, scalars: Sequence[float], *inputs: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            ctx.set_materialize_grads(False)
            with _below():
                out = op(point, list(inputs), outputs, scalars)
            gradients.point_setup(ctx, (point, inputs, outputs, scalars), out)
            return tuple(out)

        @staticmethod
        def backward(ctx: Context, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            return None, None, None, *gradients.point_gradients(ctx, grads)

    def call(
        point: int, inputs: Sequence[torch.Tensor], outputs: int, scalars: Sequence[float]
    ) -> Sequence[torch.Tensor]:
        if torch.is_grad_enabled() and any_requires_grad(*inputs):
            return Pointwise.apply(point, outputs, scalars, *inputs)
        with _below():
            return op(point, inputs, outputs, scalars)

    return call


# --------------------------------------------------------------------------- determinism
# The CUDA kernels that add floating values by atomics, in an order that differs from run to run.
NOT_DETERMINISTIC_ON_CUDA = ("roi_align_backward", "deform_columns_backward")
_library = torch.library.Library("oneflow", "FRAGMENT")


def _alert_not_deterministic(name: str) -> None:
    """The error or warning of torch's alertNotDeterministic, which the stable ABI lacks."""
    message = (
        f"oneflow::{name} on CUDA does not have a deterministic implementation, but you set"
        " 'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation,"
        " or you can use the 'warn_only=True' option, if that's acceptable for your application."
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=2)


def _register_alert(name: str) -> None:
    """Check before each call of a CUDA kernel, whoever calls the operator, whether it must be
    deterministic.
    """
    op = getattr(torch.ops.oneflow, name).default

    def call(keys: Any, *args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if torch.are_deterministic_algorithms_enabled() and args[0].device.type == "cuda":
            _alert_not_deterministic(name)
        return op.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args)

    _library.impl(name, call, "ADInplaceOrView", with_keyset=True)


def register() -> None:
    """Register everything above; called once, after the library is loaded."""
    for name, fake in FAKES.items():
        torch.library.register_fake(f"oneflow::{name}", fake)
    for name, (setup, backward) in gradients.AUTOGRAD.items():
        torch.library.register_autograd(f"oneflow::{name}", backward, setup_context=setup)
    for name in NOT_DETERMINISTIC_ON_CUDA:
        _register_alert(name)
    for name in FAKES:
        setattr(run, name, _callable(name) if name != "pointwise" else _pointwise_callable())
