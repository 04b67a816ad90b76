"""What batch norm gives in training, in the usual cases: torch finds it out operator by operator, 5 milliseconds a layer."""
from __future__ import annotations

import torch

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def batch_norm_results(func, args):
    """The symbolic results of native_batch_norm and its gradient; None where torch shall find them out. Call it in the symbolic mode."""
    if func is aten.native_batch_norm.default:
        x, *channel_wise, training, _, _ = args
        if training and _usual(x, channel_wise):
            return _like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])
    elif func is aten.native_batch_norm_backward.default:
        grad, x, *channel_wise, training, _, wanted = args
        if training and grad.shape == x.shape and grad.dtype == x.dtype and _usual(x, channel_wise):
            made = (_like, lambda x: x.new_empty(x.shape[1]), lambda x: x.new_empty(x.shape[1]))
            return tuple(make(x) if want else None for make, want in zip(made, wanted))
    return None


def _usual(x, channel_wise):
    return x.ndim >= 2 and x.dtype in (torch.float32, torch.float64) and _format(x) is not None and all(t is None or t.shape == x.shape[1:2] and t.dtype == x.dtype for t in channel_wise)


def _format(x):
    """The memory format of the kernel's result; None for a tensor of none, or of two at once."""
    other = _FORMATS.get(x.ndim)
    plain, last = x.is_contiguous(), other is not None and x.is_contiguous(memory_format=other)
    return None if plain == last else torch.contiguous_format if plain else other


def _like(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=_format(x))
