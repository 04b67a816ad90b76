"""one_embedding's operators on a store: rows read, written and trained by the name of the embedding that owns
them.

OneFlow finds a store by `embedding_name` among those its handlers opened; here the name is that of a living
oneflow.one_embedding.Embedding, whose tables give a new id its first row (OneFlow takes them from
`embedding_tables`).
"""

from __future__ import annotations

import torch

from . import functional
from .registry import LIVE

__all__ = [
    "one_embedding_embedding_put",
    "one_embedding_fused_lookup",
    "one_embedding_fused_lookup_grad",
    "one_embedding_lookup",
]


def _owner(name, embedding_name, line_size, embedding_size=None):
    living = [e for _, e in sorted(LIVE.items())]
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


def _keys(num_unique_ids, unique_ids):
    n = int(num_unique_ids)
    if not 0 <= n <= unique_ids.numel():
        raise RuntimeError(f"num_unique_ids must be from 0 to the {unique_ids.numel()} ids given, found {n}")
    return n, unique_ids.detach().reshape(-1)[:n].cpu().long().numpy()


@torch.no_grad()
def one_embedding_lookup(
    num_unique_ids,
    unique_ids,
    table_ids,
    dtype=torch.float32,
    embedding_dtype=torch.float32,
    line_size=0,
    embedding_size=0,
    embedding_name="",
    embedding_tables="",
    state_initializer="",
    seed=0,
):
    """(whole rows (ids, line_size) in `dtype`, their embeddings (ids, embedding_size) in `embedding_dtype`)
    of the first num_unique_ids
    ids, zeros behind. An id that is new gets its first row, which is stored. The rows go to the device of the
    ids.
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
    num_unique_ids, unique_ids, unique_embeddings, embedding_name="", line_size=0
):
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
    shadow,
    ids,
    table_ids=None,
    dtype=torch.float32,
    embedding_name="",
    line_size=0,
    embedding_size=0,
    is_full_cache=False,
    num_tables=1,
    embedding_tables="",
    padding_idx=None,
    seed=0,
):
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
    return functional.lookup(
        shadow, ids, owner._table_ids(ids, table_ids), owner._number, owner.embedding_dim, dtype
    )


def one_embedding_fused_lookup_grad(ids, embedding_grad, embedding_name="", line_size=0, embedding_size=0):
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
