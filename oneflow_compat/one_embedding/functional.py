"""The operators behind the embeddings: look rows up, take their gradient, update them.

A graph records these operators. They work on the store, outside of the tensors that a graph knows. The
gradient of `shadow` is the L2 norm of the rows' gradients: what unscaling and clipping do to the norm is then
done to the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .registry import LIVE, live


def _unique(
    ids: torch.Tensor, tables: torch.Tensor | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
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
def _lookup(
    shadow: torch.Tensor,
    ids: torch.Tensor,
    tables: torch.Tensor | None,
    embedding_id: int,
    size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    keys, table_of, inverse = _unique(ids, tables)
    rows = live(embedding_id).rows_of(keys, table_of)[:, :size]
    out = torch.from_numpy(rows[inverse]).reshape(*ids.shape, size)
    return out.to(device=ids.device, dtype=dtype)


@_lookup.register_fake
def _(
    shadow: torch.Tensor,
    ids: torch.Tensor,
    tables: torch.Tensor | None,
    embedding_id: int,
    size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    return ids.new_empty((*ids.shape, size), dtype=dtype)


@torch.library.custom_op(
    "oneflow_one_embedding::collect",
    mutates_args=(),
    schema="(Tensor grad, Tensor shadow, Tensor ids, Tensor? tables, int number) -> Tensor",
)
def _collect(
    grad: torch.Tensor,
    shadow: torch.Tensor,
    ids: torch.Tensor,
    tables: torch.Tensor | None,
    embedding_id: int,
) -> torch.Tensor:
    keys, table_of, inverse = _unique(ids, tables)
    flat = grad.detach().reshape(-1, grad.shape[-1]).to(device="cpu", dtype=torch.float32)
    summed = torch.zeros(len(keys), flat.shape[1]).index_add_(0, torch.from_numpy(inverse), flat)
    return torch.full_like(shadow, live(embedding_id).collect(keys, table_of, summed))


@_collect.register_fake
def _(
    grad: torch.Tensor,
    shadow: torch.Tensor,
    ids: torch.Tensor,
    tables: torch.Tensor | None,
    embedding_id: int,
) -> torch.Tensor:
    return torch.empty_like(shadow)


@torch.library.custom_op(
    "oneflow_one_embedding::update",
    mutates_args=(),
    schema="(Tensor grad, Tensor? found, int number) -> Tensor",
)
def _update(grad: torch.Tensor, found_inf: torch.Tensor | None, embedding_id: int) -> torch.Tensor:
    embedding = live(embedding_id)
    if found_inf is not None and found_inf.item():
        embedding.drop_gradients()
    else:
        embedding.update(grad.item())
    return torch.zeros_like(grad)


@_update.register_fake
def _(grad: torch.Tensor, found_inf: torch.Tensor | None, embedding_id: int) -> torch.Tensor:
    return torch.empty_like(grad)


def update(grad: torch.Tensor, found_inf: torch.Tensor | None, embedding_id: int) -> torch.Tensor:
    """Update the rows in a graph, for the gradient of `shadow` after unscaling and clipping.

    Return zeros, which replace the gradient.
    """
    return _update(grad.detach(), found_inf, embedding_id)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    shadow, ids, tables, embedding_id, _, _ = inputs
    ctx.number = embedding_id
    ctx.save_for_backward(shadow, ids, *([] if tables is None else [tables]))


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
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


def lookup(
    shadow: torch.Tensor,
    ids: torch.Tensor,
    tables: torch.Tensor | None,
    embedding_id: int,
    size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Rows of ids, differentiable: the backward hands the rows' gradient to the embedding."""
    return _lookup(shadow, ids, tables, embedding_id, size, dtype)


# --------------------------------------------------------------------------- by the name of an embedding
# OneFlow finds a store by `embedding_name` among those its handlers opened; here the name is that of a
# living oneflow.one_embedding.Embedding, whose tables give a new id its first row (OneFlow takes them from
# `embedding_tables`).
def _owner(name: str, embedding_name: str, line_size: int | None, embedding_size: int | None = None) -> Any:
    living: list[Any] = [e for _, e in sorted(LIVE.items())]
    rows = next((e for e in reversed(living) if e.name == embedding_name), None)
    if rows is None:
        raise RuntimeError(
            f"{name}: no one_embedding is called {embedding_name!r}, found"
            f" {sorted({e.name for e in living})}; make a MultiTableEmbedding of that name first"
        )
    if line_size not in (None, 0, rows.line) or embedding_size not in (None, 0, rows.embedding_dim):
        raise RuntimeError(
            f"{name}: {embedding_name!r} has rows of {rows.line} numbers, {rows.embedding_dim} of them the"
            f" embedding; found line_size {line_size}, embedding_size {embedding_size}"
        )
    return rows


def _keys(num_unique_ids: int | torch.Tensor, unique_ids: torch.Tensor) -> tuple[int, np.ndarray]:
    n = int(num_unique_ids)
    if not 0 <= n <= unique_ids.numel():
        raise RuntimeError(f"num_unique_ids must be from 0 to the {unique_ids.numel()} ids given, found {n}")
    return n, unique_ids.detach().reshape(-1)[:n].cpu().long().numpy()


@torch.no_grad()
def one_embedding_lookup(
    num_unique_ids: int | torch.Tensor,
    unique_ids: torch.Tensor,
    table_ids: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
    embedding_dtype: torch.dtype = torch.float32,
    line_size: int = 0,
    embedding_size: int = 0,
    embedding_name: str = "",
    embedding_tables: str = "",
    state_initializer: str = "",
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of the first num_unique_ids ids, on the device of the ids.

    The result is the rows (ids, line_size) in `dtype`, and their embeddings (ids, embedding_size) in
    `embedding_dtype`. The rows after num_unique_ids are zeros. A new id gets an initial row, which is stored.
    """
    owner = _owner("one_embedding_lookup", embedding_name, line_size, embedding_size)
    n, keys = _keys(num_unique_ids, unique_ids)
    tables = None if table_ids is None else table_ids.reshape(-1)[:n].cpu().numpy()
    rows = torch.zeros(unique_ids.numel(), owner.line)
    rows[:n] = torch.from_numpy(owner.rows_of(keys, tables))
    rows = rows.to(unique_ids.device)
    return rows.to(dtype), rows[:, : owner.embedding_dim].to(embedding_dtype).contiguous()


@torch.no_grad()
def one_embedding_embedding_put(
    num_unique_ids: int | torch.Tensor,
    unique_ids: torch.Tensor,
    unique_embeddings: torch.Tensor,
    embedding_name: str = "",
    line_size: int = 0,
) -> None:
    """Write the first num_unique_ids rows of unique_embeddings (ids, line_size) to the store.

    RuntimeError for unique_embeddings of another shape.
    """
    owner = _owner("one_embedding_embedding_put", embedding_name, line_size)
    n, keys = _keys(num_unique_ids, unique_ids)
    if unique_embeddings.numel() != unique_ids.numel() * owner.line:
        raise RuntimeError(
            f"one_embedding_embedding_put: {unique_ids.numel()} rows of {owner.line} numbers are needed,"
            f" found {tuple(unique_embeddings.shape)}"
        )
    owner.store.put(keys, unique_embeddings.reshape(-1, owner.line)[:n].float().cpu().numpy())


def one_embedding_fused_lookup(
    shadow: torch.Tensor,
    ids: torch.Tensor,
    table_ids: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    embedding_name: str = "",
    line_size: int = 0,
    embedding_size: int = 0,
    is_full_cache: bool = False,
    num_tables: int = 1,
    embedding_tables: str = "",
    padding_idx: int | None = None,
    seed: int = 0,
) -> torch.Tensor:
    """Embeddings of ids of any shape, ids.shape + (embedding_size,).

    Differentiable: the rows' gradient goes to the embedding that owns
    them, for its optimizer; that of `shadow`, the embedding's parameter, is zero.

    RuntimeError if padding_idx is not that of the embedding.
    """
    owner = _owner("one_embedding_fused_lookup", embedding_name, line_size, embedding_size)
    if padding_idx not in (None, owner.padding_idx):
        raise RuntimeError(
            f"one_embedding_fused_lookup: padding_idx is {owner.padding_idx} in {embedding_name!r}, found"
            f" {padding_idx}"
        )
    return lookup(shadow, ids, owner._table_ids(ids, table_ids), owner._number, owner.embedding_dim, dtype)


def one_embedding_fused_lookup_grad(
    ids: torch.Tensor,
    embedding_grad: torch.Tensor,
    embedding_name: str = "",
    line_size: int = 0,
    embedding_size: int = 0,
) -> None:
    """Hand the gradient of looked-up embeddings to the embedding that owns them; its next update uses it.

    embedding_grad has shape (*ids.shape, embedding_size). RuntimeError for another shape.
    """
    owner = _owner("one_embedding_fused_lookup_grad", embedding_name, line_size, embedding_size)
    if embedding_grad.numel() != ids.numel() * owner.embedding_dim:
        raise RuntimeError(
            f"one_embedding_fused_lookup_grad: ids {tuple(ids.shape)} need gradients of {owner.embedding_dim}"
            f" numbers each, found {tuple(embedding_grad.shape)}"
        )
    with torch.enable_grad():
        rows = one_embedding_fused_lookup(owner.shadow, ids, None, embedding_grad.dtype, embedding_name)
    torch.autograd.grad(rows, owner.shadow, embedding_grad.reshape(rows.shape))
