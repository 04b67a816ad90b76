"""What batch norm gives in the usual cases.

torch finds it out operator by operator, 5 milliseconds a layer, and takes a transposed input for the layout of the
result, which the CPU's kernel makes dense: a view() that eager takes would not be one in the program.
"""
from __future__ import annotations

import torch

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def batch_norm_results(func, args):
    """The symbolic results of native_batch_norm and its gradient; None where torch shall find them out. Call it in the symbolic mode."""
    if func is aten.native_batch_norm.default:
        x, *channel_wise, training, _, _ = args
        if (training or x.is_cpu) and _usual(x, channel_wise):
            kept = x.shape[1] if training else 0
            return _like(x), x.new_empty(kept), x.new_empty(kept)
    elif func is aten.native_batch_norm_backward.default:
        grad, x, *channel_wise, training, _, wanted = args
        if (training or x.is_cpu) and grad.shape == x.shape and grad.dtype == x.dtype and _usual(x, channel_wise if training else channel_wise[:3]):
            made = (_like, lambda x: x.new_empty(x.shape[1]), lambda x: x.new_empty(x.shape[1]))
            return tuple(make(x) if want else None for make, want in zip(made, wanted))
    return None


def _usual(x, channel_wise):
    return x.ndim >= 2 and x.dtype in (torch.float32, torch.float64) and _format(x) is not None and all(t is None or t.shape == x.shape[1:2] and t.dtype == x.dtype for t in channel_wise)


def _format(x):
    """The memory format of the kernel's result; None for a tensor of two formats at once, and off the CPU for one of none."""
    other = _FORMATS.get(x.ndim)
    plain, last = x.is_contiguous(), other is not None and x.is_contiguous(memory_format=other)
    if plain != last:
        return torch.contiguous_format if plain else other
    return torch._prims_common.suggest_memory_format(x) if x.is_cpu and not plain else None


def _like(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=_format(x))
