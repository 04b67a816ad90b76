"""Optimizer steps on lists of tensors, in place, and clipping. They call torch's foreach kernels.

Each takes OneFlow's `scale` (1 / loss scale): the gradient used is scale * model_diff. Nothing is returned
but by fused_clip_grad.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _ext, kernels

__all__ = [
    "fused_clip_grad",
    "multi_tensor_adam_update",
    "multi_tensor_momentum_update",
    "multi_tensor_sgd_update",
    "multi_tensor_yolov5_weight_update",
]


def _lists(name: str, **lists: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    lengths = {key: len(value) for key, value in lists.items()}
    if len(set(lengths.values())) != 1:
        raise RuntimeError(
            f"{name}: the lists must be equally long, found "
            + ", ".join(f"{k} of {n}" for k, n in lengths.items())
        )
    for key, value in lists.items():
        for i, (m, t) in enumerate(zip(lists["model"], value)):
            if m.shape != t.shape:
                raise RuntimeError(
                    f"{name}: {key}[{i}] has shape {tuple(t.shape)}, model[{i}] {tuple(m.shape)}"
                )
    return [list(v) for v in lists.values()]


def _fits(model: list[torch.Tensor], *others: list[torch.Tensor]) -> bool:
    """Whether the kernel can update these lists. They need contiguous tensors of one dtype and device."""
    parameter = model[0]
    return all(t.is_contiguous() for tensors in (model, *others[1:]) for t in tensors) and _ext.use(
        parameter, *model, *(t for o in others for t in o)
    )


def _gradients(
    model: list[torch.Tensor], diff: list[torch.Tensor], scale: float, l2: float = 0.0
) -> tuple[torch.Tensor, ...]:
    """scale * diff + l2 * model, in the model's dtype; never the caller's tensors."""
    diff = [d if d.dtype is m.dtype else d.to(m.dtype) for m, d in zip(model, diff)]
    grads = torch._foreach_mul(diff, scale)
    if l2:
        torch._foreach_add_(grads, model, alpha=l2)
    return grads


@torch.no_grad()
def multi_tensor_sgd_update(
    model: list[torch.Tensor],
    model_diff: list[torch.Tensor],
    scale: float,
    weight_decay: float,
    learning_rate_val: float,
) -> None:
    """model -= lr * (scale * diff + weight_decay * model)."""
    model, diff = _lists("multi_tensor_sgd_update", model=model, model_diff=model_diff)
    if not model:
        return
    if _fits(model, diff):
        kernels.run.sgd_(model, diff, [learning_rate_val, weight_decay, scale])
        return
    torch._foreach_add_(model, _gradients(model, diff, scale, weight_decay), alpha=-learning_rate_val)


@torch.no_grad()
def multi_tensor_momentum_update(
    model: list[torch.Tensor],
    model_diff: list[torch.Tensor],
    momentum_buf: list[torch.Tensor],
    scale: float,
    weight_decay: float,
    learning_rate_val: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """buf = momentum * buf + (1 - dampening) * g; model -= lr * (nesterov ? g + momentum * buf : buf) + lr *
    weight_decay * model.
    """
    model, diff, buffers = _lists(
        "multi_tensor_momentum_update", model=model, model_diff=model_diff, momentum_buf=momentum_buf
    )
    if not model:
        return
    if _fits(model, diff, buffers):
        scalars = [
            -learning_rate_val if maximize else learning_rate_val,
            momentum,
            1 - dampening,
            float(nesterov),
            scale,
            1 - learning_rate_val * weight_decay,
        ]
        kernels.run.momentum_(model, diff, buffers, scalars)
        return
    grads = _gradients(model, diff, scale)
    torch._foreach_mul_(buffers, momentum)
    torch._foreach_add_(buffers, grads, alpha=1 - dampening)
    steps: Sequence[torch.Tensor]
    if nesterov:
        torch._foreach_add_(grads, buffers, alpha=momentum)
        steps = grads
    else:
        steps = buffers
    if weight_decay:
        torch._foreach_mul_(model, 1 - learning_rate_val * weight_decay)
    torch._foreach_add_(model, steps, alpha=learning_rate_val if maximize else -learning_rate_val)


@torch.no_grad()
def multi_tensor_adam_update(
    model: list[torch.Tensor],
    model_diff: list[torch.Tensor],
    m: list[torch.Tensor],
    v: list[torch.Tensor],
    learning_rate_val: float,
    l2: float,
    beta1: float,
    beta2: float,
    bias_correction1_val: float,
    bias_correction2_val: float,
    do_bias_correction: bool,
    scale: float,
    weight_decay: float,
    epsilon: float,
) -> None:
    """Adam: g = scale * diff + l2 * model; m, v decay by beta1, beta2; model -= lr/bc1 * m /
    (sqrt(v)/sqrt(bc2) + eps) + lr * weight_decay * model.

    bias_correction*_val are the corrections 1 - beta^t, used when do_bias_correction.
    """
    model, diff, m, v = _lists("multi_tensor_adam_update", model=model, model_diff=model_diff, m=m, v=v)
    if not model:
        return
    c1, c2 = (bias_correction1_val, bias_correction2_val) if do_bias_correction else (1.0, 1.0)
    if _fits(model, diff, m, v):
        scalars = [
            learning_rate_val / c1,
            l2,
            beta1,
            beta2,
            c2**0.5,
            epsilon,
            scale,
            1 - learning_rate_val * weight_decay,
        ]
        kernels.run.adam_(model, diff, m, v, scalars)
        return
    grads = _gradients(model, diff, scale, l2)
    torch._foreach_lerp_(m, grads, 1 - beta1)
    torch._foreach_mul_(v, beta2)
    torch._foreach_addcmul_(v, grads, grads, value=1 - beta2)
    below = torch._foreach_sqrt(v)
    if c2 != 1.0:
        torch._foreach_div_(below, c2**0.5)
    torch._foreach_add_(below, epsilon)
    if weight_decay:
        torch._foreach_mul_(model, 1 - learning_rate_val * weight_decay)
    torch._foreach_addcdiv_(model, m, below, value=-learning_rate_val / c1)


@torch.no_grad()
def multi_tensor_yolov5_weight_update(
    model: list[torch.Tensor], model_update: list[torch.Tensor], d: float
) -> None:
    """model = d * model + (1 - d) * model_update: YOLOv5's moving average of the weights."""
    model, update = _lists("multi_tensor_yolov5_weight_update", model=model, model_update=model_update)
    if model:
        torch._foreach_lerp_(
            model, [u if u.dtype is m.dtype else u.to(m.dtype) for m, u in zip(model, update)], 1 - d
        )


@torch.no_grad()
def fused_clip_grad(model_diff: list[torch.Tensor], max_norm: float, norm_type: float) -> torch.Tensor:
    """Scale the gradients in place so that their joint norm is at most max_norm; the norm before, 0-d."""
    grads = list(model_diff)
    if not grads:
        return torch.zeros(())
    total = torch.nn.utils.get_total_norm(grads, norm_type)
    torch._foreach_mul_(grads, (max_norm / (total + 1e-6)).clamp_max(1.0))
    return total
