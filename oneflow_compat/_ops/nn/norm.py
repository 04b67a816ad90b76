"""Group, batch and instance normalization: arguments and inputs that torch lacks, and a fix for a wrong
gradient of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

__all__ = ["group_norm", "batch_norm"]


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-05,
    num_channels: int | None = None,
) -> torch.Tensor:
    """Group normalisation; differs from torch's: `num_channels`, which must be the input's second size.

    ValueError if it is not.
    """
    if num_channels is not None and num_channels != input.shape[1]:
        raise ValueError(
            f"group_norm: num_channels is {num_channels}, but the input has {input.shape[1]} channels (shape"
            f" {tuple(input.shape)})"
        )
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> torch.Tensor:
    """Batch normalisation; differs from torch's: one value per channel may be trained on."""
    if training and input.dim() > 1 and input.numel() == input.shape[1]:
        return batch_norm_of_one_value(input, running_mean, running_var, weight, bias, momentum, eps)
    return with_right_gradient(
        lambda x: F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps), input
    )


def with_right_gradient(norm: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Compute norm(x), a batch norm, with a correct gradient.

    With a size of 1 (one image, a height or width of 1) torch's CPU kernel (2.11 to 2.15) can take values
    that lie pixel by pixel for values that lie channel by channel, in x or in the gradient.
    """
    if _records_a_program() or x.dim() < 4 or not torch.is_grad_enabled() or 1 not in x.shape:
        return norm(x)
    return gradient_row_by_row(norm(x.contiguous() if _misread(x) else x))


def _records_a_program() -> bool:
    """Whether torch.compile or torch.jit.trace records the operators.

    A trace names a value after the variable that the code reads its sizes from, and refuses two runs that
    name values differently.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def _misread(x: torch.Tensor) -> bool:
    """Whether x lies pixel by pixel (channels last), but for the strides of sizes of 1."""
    if x.is_contiguous():
        return False
    strides, step = [0, 1], x.shape[1]
    for size in reversed(x.shape[2:]):
        strides.insert(2, step)
        step *= size
    strides[0] = step
    sizes = [size for size, actual, usual in zip(x.shape, x.stride(), strides) if actual != usual]
    return set(sizes) == {1}


def gradient_row_by_row(out: torch.Tensor) -> torch.Tensor:
    """Register a hook on the result of a norm. It makes the gradient contiguous, as the result is, before
    torch's kernel reads it.

    (Instance norms take a batch for one image.)
    """
    if out.requires_grad and out.dim() > 3 and out.is_contiguous() and not _records_a_program():
        out.register_hook(torch.Tensor.contiguous)
    return out


def batch_norm_of_one_value(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    momentum: float,
    eps: float,
) -> torch.Tensor:
    """Normalize one value per channel: the result is the bias, with no gradient for input and weight.

    The variance of one value counts as 0 in running_var (OneFlow 0.9.0: NaN).
    """
    with torch.no_grad():
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(input.flatten(), alpha=momentum)
        if running_var is not None:
            running_var.mul_(1 - momentum)
    centred = input - input.detach()  # the kernel would round input * scale - mean * scale
    return torch.batch_norm(
        centred, weight, bias, None, None, True, momentum, eps, torch.backends.cudnn.enabled
    )


# --------------------------------------------------------------------------- batch normalization in steps
__all__ = ["batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_stats"]


def _spread(value: torch.Tensor, like: torch.Tensor, axis: int) -> torch.Tensor:
    return value.reshape([-1 if d == axis % like.dim() else 1 for d in range(like.dim())])


def _other(input: torch.Tensor, axis: int) -> list[int]:
    return [d for d in range(input.dim()) if d != axis % input.dim()]


def batch_norm_stats(input: torch.Tensor, axis: int, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, 1 / sqrt(variance + eps)) of each channel along `axis`.

    Both have shape (channels,).
    """
    variance, mean = torch.var_mean(input, _other(input, axis), unbiased=False)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    axis: int,
    eps: float,
) -> torch.Tensor:
    """(input - mean) * invstd * weight + bias with one number of each per channel along `axis`; `eps` is
    already in invstd.

    The statistics and weights have shape (channels,); the result has the shape and dtype of the input.
    """
    mean, invstd, weight, bias = (_spread(t, input, axis) for t in (mean, invstd, weight, bias))
    return (input - mean) * invstd * weight + bias


def batch_norm_backward_reduce(
    grad_out: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, axis: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(sum_dy, sum_dy_xmu, grad_weight, grad_bias) of each channel along `axis`."""
    dims = _other(input, axis)
    sum_dy = grad_out.sum(dims)
    sum_dy_xmu = (grad_out * (input - _spread(mean, input, axis))).sum(dims)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()


def batch_norm_backward_elemt(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor,
    sum_dy: torch.Tensor,
    sum_dy_xmu: torch.Tensor,
    count: torch.Tensor,
    axis: int,
) -> torch.Tensor:
    """The gradient of batch_norm_elemt's input, given the sums over all ranks; `count` holds the elements per
    channel of each rank.
    """
    total = count.sum()
    mean_dy, mean_dy_xmu = (_spread(t / total, input, axis) for t in (sum_dy, sum_dy_xmu))
    mean, invstd, weight = (_spread(t, input, axis) for t in (mean, invstd, weight))
    return (grad_out - mean_dy - (input - mean) * invstd * invstd * mean_dy_xmu) * invstd * weight
