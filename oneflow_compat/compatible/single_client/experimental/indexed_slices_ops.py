"""Sums of rows with the same index."""

from __future__ import annotations

import torch

from .. import _context


def indexed_slices_reduce_sum(indices, values, name=None):
    """Return (distinct indices, sums of their rows of `values`, count of distinct indices as int64 (1,)).

    Both results are as long as the input: the distinct entries in ascending order, then zeros as padding.
    The job runs op by op.
    """
    _context.value_dependent("indexed_slices_reduce_sum")
    flat = indices.reshape(-1)
    rows = values.reshape(flat.numel(), -1)
    distinct, positions = torch.unique(flat, return_inverse=True)
    out_ids = torch.zeros_like(flat)
    out_ids[: distinct.numel()] = distinct
    sums = torch.zeros_like(rows).index_add(0, positions, rows).reshape(values.shape)
    return out_ids.reshape(indices.shape), sums, torch.tensor([distinct.numel()], dtype=torch.int64)
