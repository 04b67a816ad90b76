"""The operators behind the embeddings: look rows up, take their gradient, update them.

A graph records them as they are.

They work on the store, outside the tensors a graph knows. The gradient of `shadow` is the L2 norm of the
rows'
gradients: what unscaling and clipping do to it is done to the rows, and a graph keeps the operators.
"""

from __future__ import annotations

import numpy as np
import torch

from .registry import live


def _unique(ids, tables):
    keys, first_index, inverse = np.unique(
        ids.detach().cpu().numpy().astype(np.int64).reshape(-1), return_index=True, return_inverse=True
    )
    return (
        keys,
        None if tables is None else tables.detach().cpu().numpy().reshape(-1)[first_index],
        inverse.reshape(-1),
    )


@torch.library.custom_op(
    "oneflow_one_embedding::lookup",
    mutates_args=(),
    schema="(Tensor shadow, Tensor ids, Tensor? tables, int number, int size, ScalarType dtype) -> Tensor",
)
def _lookup(shadow, ids, tables, embedding_id, size, dtype):
    keys, table_of, inverse = _unique(ids, tables)
    rows = live(embedding_id).rows_of(keys, table_of)[:, :size]
    out = torch.from_numpy(rows[inverse]).reshape(*ids.shape, size)
    return out.to(device=ids.device, dtype=dtype)


@_lookup.register_fake
def _(shadow, ids, tables, embedding_id, size, dtype):
    return ids.new_empty((*ids.shape, size), dtype=dtype)


@torch.library.custom_op(
    "oneflow_one_embedding::collect",
    mutates_args=(),
    schema="(Tensor grad, Tensor shadow, Tensor ids, Tensor? tables, int number) -> Tensor",
)
def _collect(grad, shadow, ids, tables, embedding_id):
    keys, table_of, inverse = _unique(ids, tables)
    flat = grad.detach().reshape(-1, grad.shape[-1]).to(device="cpu", dtype=torch.float32)
    summed = torch.zeros(len(keys), flat.shape[1]).index_add_(0, torch.from_numpy(inverse), flat)
    return torch.full_like(shadow, live(embedding_id).collect(keys, table_of, summed))


@_collect.register_fake
def _(grad, shadow, ids, tables, embedding_id):
    return torch.empty_like(shadow)


@torch.library.custom_op(
    "oneflow_one_embedding::update",
    mutates_args=(),
    schema="(Tensor grad, Tensor? found, int number) -> Tensor",
)
def _update(grad, found_inf, embedding_id):
    embedding = live(embedding_id)
    if found_inf is not None and found_inf.item():
        embedding.drop_gradients()
    else:
        embedding.update(grad.item())
    return torch.zeros_like(grad)


@_update.register_fake
def _(grad, found_inf, embedding_id):
    return torch.empty_like(grad)


def update(grad, found_inf, embedding_id):
    """One step of the rows, in a graph, for the gradient of `shadow` after unscaling and clipping.

    Returns the zeros that are left of it.
    """
    return _update(grad.detach(), found_inf, embedding_id)


def _setup(ctx, inputs, output):
    shadow, ids, tables, embedding_id, _, _ = inputs
    ctx.number = embedding_id
    ctx.save_for_backward(shadow, ids, *([] if tables is None else [tables]))


def _backward(ctx, grad):
    shadow, ids, *tables = ctx.saved_tensors
    return (
        _collect(grad, shadow, ids, tables[0] if tables else None, ctx.number),
        None,
        None,
        None,
        None,
        None,
    )


_lookup.register_autograd(_backward, setup_context=_setup)


def lookup(shadow, ids, tables, embedding_id, size, dtype):
    """Rows of ids, differentiable: the backward hands the rows' gradient to the embedding."""
    return _lookup(shadow, ids, tables, embedding_id, size, dtype)
