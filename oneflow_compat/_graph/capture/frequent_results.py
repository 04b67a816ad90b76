"""What frequent operators give in the usual cases, written down: torch finds it out by running their kernels
on symbols.

Batch norm in training is 5 milliseconds a layer there, an elementwise operator a fifth of one. And torch
takes a transposed
input of batch norm for the layout of the result, which the CPU's kernel makes dense: a view() that eager
takes would not be
one in the program. The losses' gradients and a few more differ in the same way.
"""

from __future__ import annotations

import math

import torch

from .recurrent import symbolic_results
from ..program.recurrent_layer import WHOLE_LAYERS

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_IN_PLACE = (
    {getattr(aten, n).Tensor for n in ("add_", "sub_", "mul_", "div_")}
    | {
        getattr(aten, n).default
        for n in ("addcmul_", "addcdiv_", "relu_", "sigmoid_", "tanh_", "sqrt_", "neg_", "zero_", "copy_")
    }
    | {aten.lerp_.Scalar}
)
_ELEMENTWISE = {getattr(aten, n).Tensor for n in ("add", "sub", "mul", "div")} | {
    getattr(aten, n).default
    for n in (
        "relu",
        "threshold_backward",
        "gelu",
        "gelu_backward",
        "silu",
        "silu_backward",
        "sigmoid",
        "sigmoid_backward",
        "tanh",
        "tanh_backward",
        "hardtanh",
        "hardtanh_backward",
        "neg",
    )
}
# Operators whose result has another layout on the CPU than torch's symbolic form says: contiguous, the
# input's own (beside a 0-d tensor),
# the memory format suggested by the input at that position
_CONTIGUOUS = {
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss_backward.default,
    aten.huber_loss_backward.default,
    aten._log_softmax_backward_data.default,
    aten.log_sigmoid_forward.default,
    aten.pow.Scalar,
    aten.normal.Tensor_Tensor,
    aten.normal.float_Tensor,
    aten.native_layer_norm_backward.default,
    aten.glu_backward.default,
    aten.nll_loss2d_forward.default,
}
# kernels that lay the result out as torch's iterator over these arguments does: the first layout that
# decides; torch computes their symbolic form step by step
_ITERATED = {
    **{
        getattr(aten, n).default: (0, 1)
        for n in (
            "softplus_backward",
            "hardsigmoid_backward",
            "hardswish_backward",
            "hardtanh_backward",
            "logit_backward",
            "native_dropout_backward",
            "floor_divide",
            "special_xlog1py",
            "heaviside",
            "logaddexp",
            "logaddexp2",
            "logical_and",
            "logical_or",
            "logical_xor",
            "complex",
            "polar",
        )
    },
    **dict.fromkeys((aten.copysign.Tensor, aten.div.Tensor_mode, aten.xlogy.Tensor), (0, 1)),
    aten.elu_backward.default: (0, 5),
    aten.threshold_backward.default: (1, 0),
    aten.leaky_relu_backward.default: (1, 0),
    aten.log_sigmoid_backward.default: (0,),
    aten.soft_margin_loss_backward.default: (2,),
    aten.binary_cross_entropy_backward.default: (1,),
}
_ARITHMETIC = {
    getattr(aten, n).Tensor for n in ("add", "sub", "mul", "div")
}  # of half precision torch takes expanded tensors for contiguous ones
_RECURRENT = {aten._cudnn_rnn.default, aten._cudnn_rnn_backward.default, *WHOLE_LAYERS.values()}
_SUGGESTED = {
    aten.channel_shuffle.default: 0,
    aten.max_unpool2d.default: 0,
    aten.reflection_pad3d.default: 0,
    aten.replication_pad3d.default: 0,
    **{
        getattr(aten, n + "_backward").default: 1
        for n in ("reflection_pad2d", "replication_pad2d", "reflection_pad3d", "replication_pad3d")
    },
}


def known_results(func, args, kwargs):
    """Return the symbolic results of an operator, or None if torch has to compute them.

    Call it in the symbolic mode.
    """
    if func in _IN_PLACE:
        return args[0] if _writes((*args, *kwargs.values())) else None
    if func in _ELEMENTWISE and _alike((*args, *kwargs.values())):
        return _like(args[0])
    if func is aten.native_batch_norm.default:
        x, *channel_wise, training, _, _ = args
        if (training or x.is_cpu) and _usual(x, channel_wise):
            kept = x.shape[1] if training else 0
            return _like(x), x.new_empty(kept), x.new_empty(kept)
        if x.is_cpu and x.dtype is torch.bfloat16 and x.dim() > 1 and _format(x) is not None:
            return _like(x), *func(*args)[1:]
    elif func is aten.native_batch_norm_backward.default:
        grad, x, *channel_wise, training, _, output_mask = args
        if (
            (training or x.is_cpu)
            and grad.shape == x.shape
            and grad.dtype == x.dtype
            and _usual(x, channel_wise if training else channel_wise[:3])
        ):
            makers = (_like, lambda x: x.new_empty(x.shape[1]), lambda x: x.new_empty(x.shape[1]))
            return tuple(make(x) if want else None for make, want in zip(makers, output_mask))
    elif func is aten.cudnn_batch_norm.default:
        x, *channel_wise, training, _, _ = args
        if training and _usual(x, channel_wise):
            return (
                _like(x),
                x.new_empty(x.shape[1]),
                x.new_empty(x.shape[1]),
                x.new_empty(0, dtype=torch.uint8),
            )
    elif func is aten.cudnn_batch_norm_backward.default:
        x, grad, weight, *_ = args
        if grad.shape == x.shape and grad.dtype == x.dtype and _usual(x, (weight,)):
            return _like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])
    elif func in _RECURRENT:
        return symbolic_results(func, args)
    elif (
        func is aten._efficientzerotensor.default and args[0]
    ):  # without dims it may stand for a number, which is read
        return torch.empty(
            *args, **kwargs
        )  # views of a symbolic tensor marked as zero would leave the symbolic mode
    elif func is aten.index.Tensor and any(
        i is not None and i.dtype is torch.uint8 for i in args[1]
    ):  # torch's symbolic form takes no masks of bytes
        return func(args[0], [i.bool() if i is not None and i.dtype is torch.uint8 else i for i in args[1]])
    elif func is aten.masked_select.default and args[1].numel():  # one mask gives one size
        times = math.prod(torch.broadcast_shapes(args[0].shape, args[1].shape)) // args[1].numel()
        return args[0].new_empty(aten.nonzero.default(args[1]).shape[0] * times)
    elif func in (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor):
        return args[0].clone()
    elif func in _ARITHMETIC and any(isinstance(a, torch.Tensor) and a.dtype in _FLOATS[2:] for a in args):
        return _laid_out(func, args, func(*args, **kwargs))
    elif func is aten.multi_margin_loss.default and not args[1].dim():
        return args[0].new_empty(())
    elif func is aten._grouped_mm.default:
        return _grouped_mm(*args, **kwargs)
    elif (func in _CONTIGUOUS or func in _ITERATED or func in _SUGGESTED) and all(
        a.is_cpu for a in args if isinstance(a, torch.Tensor)
    ):
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda out: _laid_out(func, args, out), func(*args, **kwargs)
        )
    return None


def _laid_out(func, args, out):
    if func in _ITERATED or func in _ARITHMETIC:
        deciding = [
            args[i].expand(out.shape)
            for i in _ITERATED.get(func, (0, 1))
            if isinstance(args[i], torch.Tensor) and args[i].dim()
        ]
        stride = (
            torch._prims_common.compute_elementwise_output_strides(*deciding) if deciding else out.stride()
        )
        return torch.empty_strided(out.shape, stride, dtype=out.dtype, device=out.device)
    memory_format = (
        torch._prims_common.suggest_memory_format(args[_SUGGESTED[func]])
        if func in _SUGGESTED
        else torch.contiguous_format
    )
    return torch.empty(out.shape, dtype=out.dtype, device=out.device, memory_format=memory_format)


def _grouped_mm(a, b, offs=None, bias=None, out_dtype=None):
    """torch's symbolic form takes bfloat16 only, the CPU's kernel float32 and float16 too; rows of the result
    start at multiples of 16 bytes.
    """
    if not a.is_cpu or a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return None
    flat = (a.dim() == 2) + (b.dim() == 2)
    size = ((offs.shape[0],) if flat == 2 else () if flat else (a.shape[0],)) + (a.shape[-2], b.shape[-1])
    alignment = 16 // a.element_size()
    row = (size[-1] + alignment - 1) // alignment * alignment
    return torch.empty_strided(size, (size[-2] * row, row, 1)[-len(size) :], dtype=a.dtype, device=a.device)


def _alike(args):
    """Return True for floating-point tensors of one shape, dtype, device and dense layout, and options."""
    leading = args[0]
    if (
        not isinstance(leading, torch.Tensor)
        or leading.dtype not in _FLOATS
        or leading.layout is not torch.strided
        or not _dense(leading)
    ):
        return False
    layout = leading.shape, leading.stride(), leading.dtype, leading.device
    for a in args[1:]:
        if isinstance(a, torch.Tensor):
            if a.layout is not torch.strided or (a.shape, a.stride(), a.dtype, a.device) != layout:
                return False
        elif type(a) not in (int, float, str):
            return False
    return True


def _writes(args):
    """Return True for floating-point tensors of one shape, dtype and device, and options.

    The first tensor must have a separate element for each index.
    """
    destination = args[0]
    if (
        not isinstance(destination, torch.Tensor)
        or destination.dtype not in _FLOATS
        or destination.layout is not torch.strided
        or 0 in destination.stride()
    ):
        return False
    layout = torch.strided, destination.shape, destination.dtype, destination.device
    return all(
        (a.layout, a.shape, a.dtype, a.device) == layout
        if isinstance(a, torch.Tensor)
        else type(a) in (int, float, bool, str)
        for a in args[1:]
    )


def _dense(x):
    return x.is_contiguous() or x.ndim in _FORMATS and x.is_contiguous(memory_format=_FORMATS[x.ndim])


def _usual(x, channel_wise):
    if x.ndim < 2 or x.dtype not in (torch.float32, torch.float64) or _format(x) is None:
        return False
    return all(t is None or t.shape == x.shape[1:2] and t.dtype == x.dtype for t in channel_wise)


def _format(x):
    """Return the memory format of the kernel's result, or None.

    It is None for a tensor of two formats at once, and, off the CPU, for a tensor of no format.
    """
    channels_last = _FORMATS.get(x.ndim)
    plain, last = (
        x.is_contiguous(),
        channels_last is not None and x.is_contiguous(memory_format=channels_last),
    )
    if plain != last:
        return torch.contiguous_format if plain else channels_last
    return torch._prims_common.suggest_memory_format(x) if x.is_cpu and not plain else None


def _like(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=_format(x))
