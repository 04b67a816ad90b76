"""Functions with checks of values, in a file of their own: pytest rewrites the assertions of test files."""

import torch


def finite(x):
    assert not torch.isnan(x).any() and x.abs().max() < 1e6, "no finite number"


def in_range(x):
    if x.max() > 1e6 or torch.isnan(x).any():
        text = f"too large: {tuple(x.shape)}"
        raise ValueError(text)


def one_of_two(x):
    if not x.isfinite().all():
        raise ValueError("not finite")
    else:
        x = x + 1
    assert x.isfinite().all()
