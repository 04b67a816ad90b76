"""Functions with checks of values. They are in a separate file, because pytest rewrites the assertions of
test files.
"""

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


def names_the_row(x):
    wrong = x.isnan()
    if wrong.any():
        row = torch.where(wrong.any(dim=1))[0][0]
        values = x[row].tolist()
        other = x[row - 1].tolist()
        raise ValueError(
            f"Each row must be finite. Row {row} of {x.shape[0]} rows is {values}, and the row before it"
            f" is {other}, in a tensor of {x.dtype} on {x.device} with {x.dim()} dimensions."
        )
