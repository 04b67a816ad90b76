"""Dropout and random masks."""

from __future__ import annotations

import torch

from .. import _context, _math
from .._orders import takes_older_orders
from .._random_state import seeded_uniform
from ._activations import bias_add


def _uniform(shape, like, seed):
    """Numbers in [0, 1); a seed makes the sequence of calls repeatable."""
    if seed is None:
        return torch.rand(shape, device=like.device)

    return seeded_uniform(shape, like.device, seed)


def random_mask_like(like, rate, seed=None, noise_shape=None, name=None):
    """int8 blob of the shape of `like` (or noise_shape): 1 with probability 1 - rate."""
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropped elements must be in [0, 1), found {rate}")
    return (_uniform(like.shape if noise_shape is None else tuple(noise_shape), like, seed) >= rate).to(
        torch.int8
    )


@takes_older_orders("nn.dropout")
def dropout(x, rate, noise_shape=None, seed=None, name=None):
    """x * mask / (1 - rate) in a train job; x itself in a predict job or with rate 0."""
    trace = _context.trace()
    if not rate or (trace is not None and trace.job.job_type != "train"):
        return x
    if seed is None and noise_shape is None:
        return torch.nn.functional.dropout(x, rate)
    return x * random_mask_like(x, rate, seed, noise_shape).to(x.dtype) * (1.0 / (1.0 - rate))


def fused_bias_add_dropout(value, bias, data_format=None, rate=0.0, noise_shape=None, seed=None, name=None):
    return dropout(bias_add(value, bias, data_format), rate, noise_shape, seed)


def fused_scale_tril_softmax_dropout(
    x, diagonal=0, fill_value=0, scale=1, rate=0.0, noise_shape=None, seed=None, name=None
):
    probabilities = torch.softmax(_math.fused_scale_tril(x, diagonal, fill_value, scale), -1)
    return dropout(probabilities, rate, noise_shape, seed)
