"""one_embedding's stateless steps: unique ids, shuffles over ranks (one rank here), optimizer updates of
looked-up rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .._errors import difference_hint
from . import _ext, kernels

__all__ = [
    "one_embedding_adagrad_update",
    "one_embedding_adam_update",
    "one_embedding_embedding_gradient_shuffle",
    "one_embedding_embedding_shuffle",
    "one_embedding_ftrl_update",
    "one_embedding_id_shuffle",
    "one_embedding_sgd_update",
    "one_embedding_unique_key_value_pair",
]


def unique_key_value_pair_ref(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(count, unique keys, a value of each, index of each key among them); the middle two padded by zeros to
    the keys' number.
    """
    flat, flat_values = keys.reshape(-1), values.reshape(-1)
    # Not torch.unique, whose result shape depends on values: a graph may capture this function.
    ordered, order = flat.sort(stable=True)
    is_first = torch.cat([torch.ones_like(ordered[:1], dtype=torch.bool), ordered[1:] != ordered[:-1]])
    rank = is_first.cumsum(0) - 1
    inverse = torch.zeros_like(order).scatter(0, order, rank)
    out_keys, out_values = (
        torch.zeros_like(flat).scatter(0, rank, ordered),
        torch.zeros_like(flat_values).scatter(0, inverse, flat_values),
    )
    return (
        is_first.sum().to(torch.int32).reshape(1),
        out_keys,
        out_values,
        inverse.to(torch.int32).reshape(keys.shape),
    )


def _unique(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if keys.dtype is torch.int64 and _ext.use(keys, dtypes=(torch.int64,)):
        count, unique, of, inverse = kernels.run.unique_pairs(keys.reshape(-1), values.reshape(-1))
        return count, unique, of, inverse.reshape(keys.shape)
    return unique_key_value_pair_ref(keys, values)


def _tables(name: str, keys: torch.Tensor, values: torch.Tensor | None, num_tables: int) -> torch.Tensor:
    """The table of each key: as given, else by the last dimension, else 0."""
    if values is not None:
        if values.shape != keys.shape:
            raise RuntimeError(
                f"{name}: values must have the keys' shape {tuple(keys.shape)}, found {tuple(values.shape)}"
            )
        return values
    if num_tables == 1:
        return torch.zeros_like(keys, dtype=torch.uint8)
    if keys.ndim < 2 or keys.shape[-1] != num_tables:
        raise RuntimeError(
            f"{name}: without table ids the keys must be (..., {num_tables}), one column a table, found"
            f" {tuple(keys.shape)}"
        )
    return torch.arange(num_tables, dtype=torch.uint8, device=keys.device).expand(keys.shape)


@torch.no_grad()
def one_embedding_unique_key_value_pair(
    keys: torch.Tensor, values: torch.Tensor | None = None, num_tables: int = 1, embedding_name: str = ""
) -> tuple[torch.Tensor, ...]:
    """(num_unique int32 [1], unique_keys, unique_values, inverse_indices int32): keys[i] is
    unique_keys[inverse_indices[i]].

    The padded outputs hold zeros after num_unique. Their order is that of first occurrence (kernel) or
    ascending (plain torch); OneFlow's is that of a hash table.
    """
    return _unique(keys, _tables("one_embedding_unique_key_value_pair", keys, values, num_tables))


def _one_rank(name: str) -> None:
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise NotImplementedError(
            f"{name} runs on one rank here {difference_hint('ops-one-embedding-shuffle')}; found"
            f" {dist.get_world_size()} ranks"
        )


@torch.no_grad()
def one_embedding_id_shuffle(
    ids: torch.Tensor, table_ids: torch.Tensor | None = None, num_tables: int = 1, embedding_name: str = ""
) -> tuple[torch.Tensor, ...]:
    """Deduplicate ids: (num_unique_matrix, inverse_unique_partition_indices, cur_rank_num_unique,
    cur_rank_unique_ids, cur_rank_unique_table_ids, cur_rank_inverse_indices). On one rank the second holds
    each id's unique index, the last is 0, 1, 2, ...
    """
    _one_rank("one_embedding_id_shuffle")
    count, unique, tables, inverse = _unique(
        ids, _tables("one_embedding_id_shuffle", ids, table_ids, num_tables)
    )
    order = torch.arange(ids.numel(), dtype=torch.int32, device=ids.device)
    return count, inverse, count.clone(), unique, tables, torch.where(order < count, order, 0)


def one_embedding_embedding_shuffle(
    cur_rank_embeddings: torch.Tensor,
    num_unique_matrix: torch.Tensor,
    cur_rank_inverse_indices: torch.Tensor,
    inverse_unique_partition_indices: torch.Tensor,
    embedding_name: str = "",
) -> torch.Tensor:
    """Rows (unique, E) spread to every id: inverse_unique_partition_indices.shape + (E,)."""
    _one_rank("one_embedding_embedding_shuffle")
    return cur_rank_embeddings[cur_rank_inverse_indices.long()[inverse_unique_partition_indices.long()]]


def one_embedding_embedding_gradient_shuffle(
    embedding_grad: torch.Tensor,
    num_unique_matrix: torch.Tensor,
    cur_rank_inverse_indices: torch.Tensor,
    inverse_unique_partition_indices: torch.Tensor,
    embedding_name: str = "",
) -> torch.Tensor:
    """Gradients of every id summed to their unique row: (ids, E), zeros after num_unique."""
    _one_rank("one_embedding_embedding_gradient_shuffle")
    grad = embedding_grad.reshape(-1, embedding_grad.shape[-1])
    rows = cur_rank_inverse_indices.long()[inverse_unique_partition_indices.long()].reshape(-1)
    return torch.zeros_like(grad).index_add(0, rows, grad)


# a copy of all rows; of its live part, the model and each state; the gradient; the learning rate
Rows = tuple[torch.Tensor, Sequence[torch.Tensor], torch.Tensor, "torch.Tensor | float"]


def _rows(
    name: str,
    slots: int,
    num_unique_ids: torch.Tensor | int,
    unique_embeddings: torch.Tensor,
    embedding_grad: torch.Tensor,
    learning_rate: torch.Tensor | None,
    down_scale_by_tensor: torch.Tensor | None,
    skip_if: torch.Tensor | None,
    learning_rate_val: float,
    scale: float,
    line_size: int,
    embedding_size: int,
) -> Rows:
    """Return the rows that an update writes, with `slots` states; no live part if the update is skipped."""
    if line_size != embedding_size * (1 + slots):
        raise RuntimeError(
            f"{name}: line_size must be {1 + slots} * embedding_size {embedding_size}, found {line_size}"
        )
    out = unique_embeddings.clone()
    if skip_if is not None and bool(skip_if):
        return out, (), embedding_grad, learning_rate_val
    n = int(num_unique_ids)
    parts = out.reshape(-1, line_size)[:n].split(embedding_size, 1)
    grad = embedding_grad.reshape(-1, embedding_size)[:n].to(out.dtype) * scale
    if down_scale_by_tensor is not None:
        grad = grad / down_scale_by_tensor
    return out, parts, grad, learning_rate_val if learning_rate is None else learning_rate


@torch.no_grad()
def one_embedding_sgd_update(
    num_unique_ids: torch.Tensor | int,
    unique_embeddings: torch.Tensor,
    embedding_grad: torch.Tensor,
    learning_rate: torch.Tensor | None = None,
    down_scale_by_tensor: torch.Tensor | None = None,
    skip_if: torch.Tensor | None = None,
    learning_rate_val: float = 0.0,
    scale: float = 1.0,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    line_size: int = 0,
    embedding_size: int = 0,
    embedding_name: str = "",
) -> torch.Tensor:
    """SGD on the first num_unique_ids rows, a row being [model] or, with momentum, [model | momentum]; the
    updated rows.
    """
    out, parts, grad, lr = _rows(
        "one_embedding_sgd_update",
        int(momentum != 0),
        num_unique_ids,
        unique_embeddings,
        embedding_grad,
        learning_rate,
        down_scale_by_tensor,
        skip_if,
        learning_rate_val,
        scale,
        line_size,
        embedding_size,
    )
    if parts:
        decay = lr * weight_decay * parts[0]
        if momentum:
            parts[1].mul_(momentum).sub_(lr * grad)
            parts[0].add_(parts[1]).sub_(decay)
        else:
            parts[0].sub_(lr * grad).sub_(decay)
    return out


@torch.no_grad()
def one_embedding_adam_update(
    num_unique_ids: torch.Tensor | int,
    unique_embeddings: torch.Tensor,
    embedding_grad: torch.Tensor,
    learning_rate: torch.Tensor | None = None,
    down_scale_by_tensor: torch.Tensor | None = None,
    skip_if: torch.Tensor | None = None,
    bias_correction1: torch.Tensor | None = None,
    bias_correction2: torch.Tensor | None = None,
    learning_rate_val: float = 0.0,
    scale: float = 1.0,
    weight_decay: float = 0.0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    bias_correction1_val: float = 1.0,
    bias_correction2_val: float = 1.0,
    epsilon: float = 1e-8,
    do_bias_correction: bool = True,
    line_size: int = 0,
    embedding_size: int = 0,
    embedding_name: str = "",
) -> torch.Tensor:
    """Adam on rows [model | m | v]; the updated rows."""
    out, parts, grad, lr = _rows(
        "one_embedding_adam_update",
        2,
        num_unique_ids,
        unique_embeddings,
        embedding_grad,
        learning_rate,
        down_scale_by_tensor,
        skip_if,
        learning_rate_val,
        scale,
        line_size,
        embedding_size,
    )
    if parts:
        model, m, v = parts
        c1 = bias_correction1_val if bias_correction1 is None else bias_correction1
        c2 = bias_correction2_val if bias_correction2 is None else bias_correction2
        c1, c2 = (c1, c2) if do_bias_correction else (1.0, 1.0)
        m.mul_(beta1).add_((1 - beta1) * grad)
        v.mul_(beta2).add_((1 - beta2) * grad * grad)
        step = lr / c1 * m / (v.sqrt() / c2**0.5 + epsilon)
        model.sub_(step + lr * weight_decay * model)
    return out


@torch.no_grad()
def one_embedding_adagrad_update(
    num_unique_ids: torch.Tensor | int,
    unique_embeddings: torch.Tensor,
    embedding_grad: torch.Tensor,
    learning_rate: torch.Tensor | None = None,
    down_scale_by_tensor: torch.Tensor | None = None,
    skip_if: torch.Tensor | None = None,
    train_step: torch.Tensor | None = None,
    train_step_val: int = 0,
    learning_rate_val: float = 0.0,
    scale: float = 1.0,
    weight_decay: float = 0.0,
    lr_decay: float = 0.0,
    epsilon: float = 1e-10,
    line_size: int = 0,
    embedding_size: int = 0,
    embedding_name: str = "",
) -> torch.Tensor:
    """Adagrad on rows [model | sum of squares]; the updated rows."""
    out, parts, grad, lr = _rows(
        "one_embedding_adagrad_update",
        1,
        num_unique_ids,
        unique_embeddings,
        embedding_grad,
        learning_rate,
        down_scale_by_tensor,
        skip_if,
        learning_rate_val,
        scale,
        line_size,
        embedding_size,
    )
    if parts:
        model, total = parts
        step = train_step_val if train_step is None else train_step
        lr = lr / (1 + (step - 1) * lr_decay)
        total.add_(grad * grad)
        model.sub_(lr * grad / (total.sqrt() + epsilon) + lr * weight_decay * model)
    return out


@torch.no_grad()
def one_embedding_ftrl_update(
    num_unique_ids: torch.Tensor | int,
    unique_embeddings: torch.Tensor,
    embedding_grad: torch.Tensor,
    learning_rate: torch.Tensor | None = None,
    down_scale_by_tensor: torch.Tensor | None = None,
    skip_if: torch.Tensor | None = None,
    learning_rate_val: float = 0.0,
    scale: float = 1.0,
    weight_decay: float = 0.0,
    lr_power: float = -0.5,
    lambda1: float = 0.0,
    lambda2: float = 0.0,
    beta: float = 0.0,
    line_size: int = 0,
    embedding_size: int = 0,
    embedding_name: str = "",
) -> torch.Tensor:
    """FTRL-proximal on rows [model | accumulator | z]; the updated rows. weight_decay must be 0,
    as in OneFlow.

    RuntimeError for another weight_decay.
    """
    if weight_decay:
        raise RuntimeError(f"one_embedding_ftrl_update: weight_decay must be 0, found {weight_decay}")
    out, parts, grad, lr = _rows(
        "one_embedding_ftrl_update",
        2,
        num_unique_ids,
        unique_embeddings,
        embedding_grad,
        learning_rate,
        down_scale_by_tensor,
        skip_if,
        learning_rate_val,
        scale,
        line_size,
        embedding_size,
    )
    if parts:
        model, total, z = parts
        new_total = total + grad * grad
        sigma = (new_total.pow(-lr_power) - total.pow(-lr_power)) / lr
        z.add_(grad - sigma * model)
        total.copy_(new_total)
        value = (z.sign() * lambda1 - z) / ((beta + new_total.pow(-lr_power)) / lr + lambda2)
        model.copy_(torch.where(z.abs() < lambda1, torch.zeros_like(z), value))
    return out
