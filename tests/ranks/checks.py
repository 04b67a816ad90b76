"""Shared by the checks of several ranks: placements, and comparisons of global tensors."""

import numpy as np

import oneflow as flow

RANK, WORLD = flow.env.get_rank(), flow.env.get_world_size()
S0, S1, B, P = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast, flow.sbp.partial_sum
ALL = flow.placement.all("cpu")


def rules(rule):
    return rule if isinstance(rule, (list, tuple)) else (rule,)


def is_(tensor, values, rule, local=None):
    """A global tensor's values on every rank, its rules, and this rank's part."""
    assert tensor.is_global and tensor.sbp == tuple(rules(rule)), tensor.sbp
    assert np.allclose(tensor.numpy(), values), (tensor.numpy(), values)
    if local is not None:
        assert np.allclose(tensor.to_local().numpy(), local), (tensor.to_local(), local)


def mine():
    """[[0, 1], [2, 3]] on rank 0, ten more on the next, ..."""
    return flow.arange(4, dtype=flow.float32).reshape(2, 2) + 10 * RANK


def both():
    return np.concatenate([np.arange(4.0).reshape(2, 2) + 10 * r for r in range(WORLD)])
