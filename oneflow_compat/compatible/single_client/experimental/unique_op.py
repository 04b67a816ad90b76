"""Distinct values."""

from __future__ import annotations

import torch

from .. import _context


def unique_with_counts(x, out_idx=torch.int32, name=None):
    """Return (values, index of each element among them, counts, number of distinct values).

    Values are in the order of their first appearance. Values and counts are as long as x, padded with zeros.
    The job runs op by op.
    """
    _context.value_dependent("unique_with_counts")
    flat = x.reshape(-1)
    index_of, values, counts = {}, [], []
    places = []
    for v in flat.tolist():
        if v not in index_of:
            index_of[v] = len(values)
            values.append(v)
            counts.append(0)
        counts[index_of[v]] += 1
        places.append(index_of[v])
    rest = [0] * (flat.numel() - len(values))
    return (
        torch.tensor(values + rest, dtype=x.dtype),
        torch.tensor(places, dtype=out_idx),
        torch.tensor(counts + rest, dtype=out_idx),
        torch.tensor([len(values)], dtype=out_idx),
    )
