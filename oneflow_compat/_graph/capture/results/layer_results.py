"""The results of convolutions, products, norms and losses in the usual case: contiguous tensors on the CPU.

Torch has symbolic forms of most of them in Python, which call many operators: a layer norm's gradient takes
ten milliseconds the first time. Each function here returns None in another case, which is left to torch.
"""

from collections.abc import Sequence
from typing import Any

import torch

from .meta_kernels import is_static_fake, new_fake

aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64)


def _are_usual(*tensors: Any) -> bool:
    """Whether all are contiguous tensors on the CPU of one floating dtype; None is skipped."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t is None or _is_contiguous(t) and t.dtype is dtype for t in tensors)


def _is_contiguous(tensor: Any) -> bool:
    return is_static_fake(tensor) and tensor.fake_device.type == "cpu" and tensor.is_contiguous()


def _new(like: Any, *shape: int) -> Any:
    return new_fake(like.fake_mode, like.fake_device, torch.empty, shape, dtype=like.dtype)


def like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros_like() and the like, without options."""
    options = (*args[1:], *kwargs.values())
    if not _is_contiguous(args[0]) or any(v not in (None, False, torch.preserve_format) for v in options):
        return None
    return _new(args[0], *args[0].shape)


# -- convolutions --------------------------------------------------------------------------
def convolution(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, weight, bias, *window = args
    sizes = None if kwargs else _image_sizes(x, weight, *window)
    if sizes is None or bias is not None and (not _are_usual(x, bias) or bias.shape != weight.shape[:1]):
        return None
    return _new(x, x.shape[0], weight.shape[0], *sizes)


def convolution_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, x, weight, bias_sizes, *window, mask = args
    sizes = None if kwargs else _image_sizes(x, weight, *window)
    if sizes is None or tuple(grad.shape) != (x.shape[0], weight.shape[0], *sizes):
        return None
    if not is_static_fake(grad) or grad.dtype is not x.dtype or mask[2] and bias_sizes is None:
        return None
    shapes = x.shape, weight.shape, bias_sizes
    return tuple(_new(x, *shape) if is_needed else None for shape, is_needed in zip(shapes, mask))


def _image_sizes(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: Any, _: Any, groups: Any
) -> list[int] | None:
    """Return the height, width and depth of the result, or None for an unusual convolution.

    A tensor that has two memory formats at once is unusual: the kernel chooses one.
    """
    if transposed or x.dim() not in (4, 5) or weight.dim() != x.dim() or not _are_usual(x, weight):
        return None
    if any(torch._prims_common.suggest_memory_format(t) is not torch.contiguous_format for t in (x, weight)):
        return None
    channels_fit = x.shape[1] == weight.shape[1] * groups and weight.shape[0] % groups == 0
    if not channels_fit or not x.numel() or not _is_window(x.dim() - 2, stride, padding, dilation):
        return None
    sizes = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    ]
    return sizes if min(sizes) > 0 else None


def _is_window(dims: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> bool:
    if any(len(lengths) != dims for lengths in (stride, padding, dilation)):
        return False
    return min(*stride, *dilation) >= 1 and min(padding) >= 0


# -- products ------------------------------------------------------------------------------
def addmm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bias, a, b = args
    fits = a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0] and _are_usual(bias)
    if not fits or bias.dim() != 1 or bias.shape[0] != b.shape[1]:
        return None
    if any(not is_static_fake(t) or t.dtype is not bias.dtype or t.fake_device.type != "cpu" for t in (a, b)):
        return None
    return _new(bias, a.shape[0], b.shape[1])


# -- norms ---------------------------------------------------------------------------------
def layer_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, shape, weight, bias, _ = args
    if not _are_usual(x, weight, bias) or not _ends_in(x, shape, weight, bias):
        return None
    statistics = *x.shape[: x.dim() - len(shape)], *[1] * len(shape)
    return _new(x, *x.shape), _new(x, *statistics), _new(x, *statistics)


def layer_norm_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, x, shape, mean, variance, weight, bias, mask = args
    if not _are_usual(x, grad, mean, variance, weight, bias) or not _ends_in(x, shape, weight, bias):
        return None
    if grad.shape != x.shape or mask[1] and weight is None or mask[2] and bias is None:
        return None
    shapes = x.shape, shape, shape
    return tuple(_new(x, *each) if is_needed else None for each, is_needed in zip(shapes, mask))


def _ends_in(x: Any, shape: Any, *parameters: Any) -> bool:
    """Whether the sizes of x end in a shape, which the parameters have."""
    shape = list(shape)
    return (
        0 < len(shape) <= x.dim()
        and list(x.shape[x.dim() - len(shape) :]) == shape
        and all(p is None or list(p.shape) == shape for p in parameters)
    )


# -- losses --------------------------------------------------------------------------------
def softmax(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dim, half_to_float = args
    if half_to_float or not _are_usual(x) or not -x.dim() <= dim < x.dim():
        return None
    return _new(x, *x.shape)


def softmax_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, output, dim, dtype = args
    if not _are_usual(grad, output) or grad.shape != output.shape or dtype is not grad.dtype:
        return None
    return _new(grad, *grad.shape) if -grad.dim() <= dim < grad.dim() else None


def nll_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, target, weight, reduction, _ = args
    if not _are_labels(x, target, weight):
        return None
    return _new(x, *(() if reduction else target.shape)), _new(x)


def nll_loss_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, x, target, weight, reduction, _, total_weight = args
    if not _are_labels(x, target, weight) or not _are_usual(x, grad, total_weight):
        return None
    fits = grad.shape == (() if reduction else target.shape)
    return _new(x, *x.shape) if fits else None


def _are_labels(x: Any, target: Any, weight: Any) -> bool:
    return (
        _are_usual(x, weight)
        and x.dim() == 2
        and _is_contiguous(target)
        and target.dtype is torch.int64
        and target.shape == x.shape[:1]
        and (weight is None or weight.shape == x.shape[1:])
    )


RESULTS = {
    aten.zeros_like.default: like,
    aten.ones_like.default: like,
    aten.empty_like.default: like,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.addmm.default: addmm,
    aten.native_layer_norm.default: layer_norm,
    aten.native_layer_norm_backward.default: layer_norm_backward,
    aten._softmax.default: softmax,
    aten._log_softmax.default: softmax,
    aten._softmax_backward_data.default: softmax_backward,
    aten._log_softmax_backward_data.default: softmax_backward,
    aten.nll_loss_forward.default: nll_loss,
    aten.nll_loss_backward.default: nll_loss_backward,
}
