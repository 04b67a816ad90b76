"""The two operators behind the embeddings: look rows up, take their gradient. A graph records them as they are.

They work on the store, outside the tensors a graph knows; the gradient's operator returns the (zero)
gradient of `shadow`, so that a graph keeps it.
"""
from __future__ import annotations

import numpy as np
import torch

from .embedding import live


def _unique(ids, tables):
    keys, first, inverse = np.unique(ids.detach().cpu().numpy().astype(np.int64).reshape(-1), return_index=True, return_inverse=True)
    return keys, None if tables is None else tables.detach().cpu().numpy().reshape(-1)[first], inverse.reshape(-1)


@torch.library.custom_op(
    "oneflow_one_embedding::lookup", mutates_args=(),
    schema="(Tensor shadow, Tensor ids, Tensor? tables, int number, int size, ScalarType dtype, bool at_once) -> Tensor",
)  # fmt: skip
def _lookup(shadow, ids, tables, number, size, dtype, at_once):
    keys, table_of, inverse = _unique(ids, tables)
    rows = live(number).rows_of(keys, table_of)[:, :size]
    out = torch.from_numpy(rows[inverse]).reshape(*ids.shape, size)
    return out.to(device=ids.device, dtype=dtype)


@_lookup.register_fake
def _(shadow, ids, tables, number, size, dtype, at_once):
    return ids.new_empty((*ids.shape, size), dtype=dtype)


@torch.library.custom_op(
    "oneflow_one_embedding::collect", mutates_args=(),
    schema="(Tensor grad, Tensor shadow, Tensor ids, Tensor? tables, int number, bool at_once) -> Tensor",
)  # fmt: skip
def _collect(grad, shadow, ids, tables, number, at_once):
    keys, table_of, inverse = _unique(ids, tables)
    flat = grad.detach().reshape(-1, grad.shape[-1]).to(device="cpu", dtype=torch.float32)
    summed = torch.zeros(len(keys), flat.shape[1]).index_add_(0, torch.from_numpy(inverse), flat)
    live(number).collect(keys, table_of, summed, at_once)
    return torch.zeros_like(shadow)


@_collect.register_fake
def _(grad, shadow, ids, tables, number, at_once):
    return torch.empty_like(shadow)


def _setup(ctx, inputs, output):
    shadow, ids, tables, number, _, _, at_once = inputs
    ctx.number, ctx.at_once = number, at_once
    ctx.save_for_backward(shadow, ids, *([] if tables is None else [tables]))


def _backward(ctx, grad):
    shadow, ids, *tables = ctx.saved_tensors
    return _collect(grad, shadow, ids, tables[0] if tables else None, ctx.number, ctx.at_once), None, None, None, None, None, None


_lookup.register_autograd(_backward, setup_context=_setup)


def lookup(shadow, ids, tables, number, size, dtype):
    """Rows of ids, differentiable: the backward hands the rows' gradient to the embedding."""
    from .._graph.capture import capturing

    return _lookup(shadow, ids, tables, number, size, dtype, capturing())
