"""Embeddings whose rows are found by any int64 id and kept in a store, outside the module's parameters.

A row is created when its id is first looked up. It holds the embedding and the optimizer's states.
"""

from __future__ import annotations

import functools
import json
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _processes
from .._errors import difference_hint
from .._graph import external_updates
from . import functional, initial, snapshot
from .options import check_arguments
from .registry import LIVE
from .row_gradients import CollectedGradients, RowGradients
from .rules import RULES, rule_for
from .store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .rules import Rule


_next = 1


class Embedding(torch.nn.Module):
    """Base of the embeddings.

    - `name`: unique in a process by convention.
    - `embedding_dim`: an int, or a list of column sizes.
    - `dtype`: oneflow.float; rows are kept as float32. `key_type`: oneflow.int64 or int32.
    - `tables`: a list of make_table_options. An id belongs to one table; ids of different tables must differ.
    - `store_options`: make_*_store_options.
    - `default_initializer`: for tables without one. `seed`: of the initializers.
    - `padding_idx`: the row of this id is zeros and is not trained.

    `shadow` is the one parameter; the optimizer that holds it updates the rows: in eager mode through
    oneflow.one_embedding.Optimizer, in nn.Graph through add_optimizer.

    ValueError or TypeError for other values of these arguments. NotImplementedError on several ranks.
    """

    def __init__(
        self,
        name: str,
        embedding_dim: int | Sequence[int],
        dtype: torch.dtype,
        key_type: torch.dtype,
        tables: Sequence[dict[str, Any]],
        store_options: dict[str, Any],
        default_initializer: dict[str, Any] | None = None,
        padding_idx: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        global _next
        if _processes.get_world_size() > 1:
            raise NotImplementedError(
                f"one_embedding runs on one rank here {difference_hint('one-embedding-shuffle')}; found"
                f" {_processes.get_world_size()} ranks"
            )
        self._widths = self._column_widths(embedding_dim, tables)
        check_arguments(name, embedding_dim, dtype, key_type, tables, store_options)
        self.name, self.dtype, self.key_type = name, dtype, key_type
        self.padding_idx, self.seed = padding_idx, seed
        self.embedding_dim = sum(self._widths)
        self._columns = [self._of_table(i, t, default_initializer) for i, t in enumerate(tables)]
        self.store_options = store_options
        storage_dim = store_options["storage_dim"]
        self.line = storage_dim if storage_dim > 0 else self.embedding_dim * store_options["size_factor"]
        if self.line < self.embedding_dim:
            raise ValueError(
                f"one_embedding {name!r}: storage_dim {self.line} is less than the embedding's"
                f" {self.embedding_dim} numbers"
            )
        self.store = open_store(store_options, self.line, _processes.get_rank())
        self.shadow = torch.nn.Parameter(torch.zeros(1))
        self._number, _next = _next, _next + 1
        self.shadow._one_embedding = self._number
        LIVE[self._number] = self
        self._optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        self._step = 0
        self._collected = CollectedGradients()

    @staticmethod
    def _column_widths(embedding_dim: int | Sequence[int], tables: Sequence[dict[str, Any]]) -> list[int]:
        """Return the width of each column of a row."""
        return [embedding_dim] if isinstance(embedding_dim, int) else list(embedding_dim)

    def _of_table(
        self, i: int, table: Mapping[str, Any], default: dict[str, Any] | None
    ) -> list[dict[str, Any]]:
        columns = table.get("columns")
        if columns is None:
            columns = [{"initializer": table.get("initializer", default)}] * len(self._widths)
        if len(columns) != len(self._widths):
            raise ValueError(
                f"one_embedding {self.name!r}: table {i} has {len(columns)} columns, embedding_dim has"
                f" {len(self._widths)}"
            )
        initializers: list[Any] = [c.get("initializer") or default for c in columns]
        if None in initializers:
            raise ValueError(
                f"one_embedding {self.name!r}: table {i} has no initializer and there is no"
                " default_initializer"
            )
        for initializer, width in zip(initializers, self._widths):
            initial.rows(initializer, np.zeros(1, np.int64), width, self.seed)  # refuses an unknown one now
        return initializers

    # -- rows ----------------------------------------------------------------
    def forward(self, ids: torch.Tensor, table_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the embeddings of `ids` (any shape) in the shape (*ids.shape, embedding_dim).

        `table_ids` (uint8, the shape of `ids`) names the table of each id. Without it, the last dimension of
        `ids` counts the tables, or there is one table. TypeError unless the ids are integers.
        """
        if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.is_complex():
            raise TypeError(
                f"one_embedding {self.name!r}: ids are a tensor of whole numbers, found"
                f" {getattr(ids, 'dtype', type(ids).__name__)}"
            )
        if ids.dtype is not self.key_type:
            ids = ids.to(self.key_type)
        tables = self._table_ids(ids, table_ids)
        return functional.lookup(self.shadow, ids, tables, self._number, self.embedding_dim, self.dtype)

    def _table_ids(self, ids: torch.Tensor, table_ids: torch.Tensor | None) -> torch.Tensor | None:
        if table_ids is not None:
            if table_ids.shape != ids.shape:
                raise ValueError(
                    f"one_embedding {self.name!r}: table_ids has shape {tuple(table_ids.shape)}, ids"
                    f" {tuple(ids.shape)}"
                )
            return table_ids
        if len(self._columns) == 1:
            return None
        if ids.dim() < 2 or ids.shape[-1] != len(self._columns):
            raise ValueError(
                f"one_embedding {self.name!r}: without table_ids the last dimension of ids must be the"
                f" {len(self._columns)} tables, found {tuple(ids.shape)}"
            )
        return torch.arange(len(self._columns), dtype=torch.uint8, device=ids.device).expand(ids.shape)

    def rows_of(self, keys: np.ndarray, tables: np.ndarray | None) -> np.ndarray:
        """Return the rows (keys, line) of unique keys: embeddings and states.

        A key without a row gets its initial row, which is stored.
        """
        rows, is_present = self.store.get(keys)
        new = np.flatnonzero(~is_present)
        if len(new):
            rows[new] = self._first(keys[new], None if tables is None else tables[new])
            self.store.put(keys[new], rows[new])
        return rows

    def _first(self, keys: np.ndarray, tables: np.ndarray | None) -> np.ndarray:
        rows = np.zeros((len(keys), self.line), np.float32)
        which = np.zeros(len(keys), np.int64) if tables is None else tables.astype(np.int64)
        if which.size and which.max() >= len(self._columns):
            raise ValueError(
                f"one_embedding {self.name!r}: table id {which.max()}, there are {len(self._columns)} tables"
            )
        for table in np.unique(which):
            mine, at = which == table, 0
            for i, (initializer, width) in enumerate(zip(self._columns[table], self._widths)):
                rows[mine, at : at + width] = initial.rows(initializer, keys[mine], width, self.seed + i)
                at += width
        states = self._initial_states()
        for i, value in enumerate(states):
            rows[:, (1 + i) * self.embedding_dim : (2 + i) * self.embedding_dim] = value
        if self.padding_idx is not None:
            rows[keys == self.padding_idx] = 0
        return rows

    def _initial_states(self) -> tuple[float, ...]:
        if self._optimizer is None:
            return ()
        optimizer, group = self._group()
        rule = rule_for(optimizer, group, max(1, self._step))
        return rule.initial if isinstance(rule.initial, tuple) else (rule.initial,) * rule.states

    # -- training ------------------------------------------------------------
    def attach(self, optimizer: torch.optim.Optimizer, in_graph: bool = False) -> None:
        """Let `optimizer`, which must hold `shadow`, update the rows from now on; in_graph: at the end of a
        graph's step.
        """
        rule = rule_for(optimizer, self._group_of(optimizer), 1)
        need = self.embedding_dim * (1 + rule.states) + rule.extra
        if need > self.line:
            raise ValueError(
                f"one_embedding {self.name!r}: {type(optimizer).__name__} keeps rows of {need} numbers, the"
                f" store has {self.line}; make the store with size_factor={1 + rule.states}"
                + (f" and storage_dim={need}" if rule.extra else "")
            )
        self._optimizer = weakref.ref(optimizer)
        if in_graph:
            update = functools.partial(functional.update, embedding_id=self._number)
            external_updates[self.shadow] = update

    def _group(self) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is None:
            raise RuntimeError(
                f"one_embedding {self.name!r}: no optimizer is attached; use one_embedding.Optimizer, or"
                " add_optimizer of nn.Graph"
            )
        return optimizer, self._group_of(optimizer)

    def _group_of(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        for group in optimizer.param_groups:
            if any(p is self.shadow for p in group["params"]):
                return group
        raise ValueError(
            f"one_embedding {self.name!r}: the optimizer does not hold this embedding's parameters; pass it"
            " the module's parameters()"
        )

    def collect(self, keys: np.ndarray, tables: np.ndarray | None, grad: torch.Tensor) -> float:
        """Keep the gradient (keys, embedding_dim) of unique keys for the next step.

        Return by how much the norm of the kept gradients grows.
        """
        return self._collected.add(RowGradients(keys, tables, grad))

    def update(self, norm: float | None = None) -> None:
        """Update the rows with the gradients collected since the last step.

        `norm` is the norm of these gradients after unscaling and clipping; None uses them unchanged.
        """
        self._step += 1
        gradients = self._collected.take(norm)
        if gradients is not None:
            optimizer, group = self._group()
            self._update_rows(gradients, rule_for(optimizer, group, self._step), float(group["lr"]))

    def _update_as(self, optimizer_name: str, param_group: Mapping[str, Any], step: int) -> None:
        self._step = int(step)
        gradients = self._collected.take()
        if gradients is not None:
            self._update_rows(
                gradients, RULES[optimizer_name](param_group, self._step), float(param_group["lr"])
            )

    def sgd_update(self, param_group: Mapping[str, Any], step: int) -> None:
        """SGD on the rows, with the gradients collected since the last update and the options of
        `param_group`.
        """
        self._update_as("SGD", param_group, step)

    def adam_update(self, param_group: Mapping[str, Any], step: int) -> None:
        """Adam on the rows; as sgd_update."""
        self._update_as("Adam", param_group, step)

    def adagrad_update(self, param_group: Mapping[str, Any], step: int) -> None:
        """Adagrad on the rows; as sgd_update."""
        self._update_as("Adagrad", param_group, step)

    def ftrl_update(self, param_group: Mapping[str, Any], step: int) -> None:
        """FTRL on the rows; as sgd_update."""
        self._update_as("Ftrl", param_group, step)

    def shuffle_and_lookup(self, state_initializer: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids (n,) int64 that collected a gradient, and their rows (n, line) float32.

        `state_initializer` is not used, because an optimizer knows its initial states.
        """
        collected = self._collected.sum
        keys = np.empty(0, np.int64) if collected is None else collected.keys
        return torch.from_numpy(keys), torch.from_numpy(self.store.get(keys)[0])

    def drop_gradients(self) -> None:
        """Forget the gradients collected since the last step."""
        self._collected.clear()

    def _update_rows(self, gradients: RowGradients, rule: Rule, lr: float) -> None:
        """Update the rows of these gradients by a rule, and store them."""
        if self.padding_idx is not None:
            gradients = gradients.without(self.padding_idx)
        if not len(gradients.keys):
            return
        rows = torch.from_numpy(self.rows_of(gradients.keys, gradients.tables))
        used = self.embedding_dim * (1 + rule.states) + rule.extra
        rows[:, :used] = rule.update(rows[:, :used].contiguous(), gradients.values, self.embedding_dim, lr)
        self.store.put(gradients.keys, rows.numpy())

    # -- snapshots -----------------------------------------------------------
    def save_snapshot(self, snapshot_name: str) -> None:
        """Write all rows to <persistent_path>/snapshots/<snapshot_name>, whole or not at all."""
        snapshot.write(self.store.path, snapshot_name, self.store.chunks(), self.line)

    def load_snapshot(self, snapshot_name: str) -> None:
        """Become the rows of a snapshot; unchanged if it is damaged.

        RuntimeError for a snapshot of rows of another width.
        """
        line, _ = snapshot.read(self.store.path, snapshot_name)
        if line != self.line:
            raise RuntimeError(
                f"snapshot {snapshot_name!r} has rows of {line} numbers, {self.name!r} has {self.line}:"
                " another embedding_dim or size_factor"
            )
        self.store.replace(lambda: snapshot.read(self.store.path, snapshot_name)[1])

    def close(self) -> None:
        """Write what is not on disk yet and let go of the store."""
        self.store.close()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        name = time.strftime("%Y-%m-%d-%H-%M-%S") + f"-{time.time_ns() % 10**9:09d}"
        self.save_snapshot(name)
        destination[prefix + "OneEmbeddingKeyValueOptions"] = json.dumps(
            {**self.store_options, "name": self.name, "step": self._step}
        )
        destination[prefix + "OneEmbeddingSnapshot"] = name

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        name = state_dict.get(prefix + "OneEmbeddingSnapshot")
        options = state_dict.get(prefix + "OneEmbeddingKeyValueOptions")
        if name is not None:
            self.load_snapshot(name)
        if options is not None:
            self._step = json.loads(options).get("step", self._step)
        kept = {k: v for k, v in state_dict.items() if not k.startswith(prefix + "OneEmbedding")}
        super()._load_from_state_dict(
            kept, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if name is None and strict:
            missing_keys.append(prefix + "OneEmbeddingSnapshot")

    def extra_repr(self) -> str:
        return (
            f"{self.name!r}, embedding_dim={self.embedding_dim}, tables={len(self._columns)},"
            f" line={self.line}"
        )


class MultiTableEmbedding(Embedding):
    """Tables of rows of one width; see `Embedding`.

    TypeError unless embedding_dim is an int.
    """

    @staticmethod
    def _column_widths(embedding_dim: int | Sequence[int], tables: Sequence[dict[str, Any]]) -> list[int]:
        if not isinstance(embedding_dim, int):
            raise TypeError(
                f"MultiTableEmbedding: embedding_dim is an int, found {embedding_dim!r};"
                " MultiTableMultiColumnEmbedding takes a list"
            )
        return [embedding_dim]


class MultiTableMultiColumnEmbedding(Embedding):
    """Tables whose rows are several columns, each with its width and initializer; forward gives them side by
    side.
    """

    @staticmethod
    def _column_widths(embedding_dim: int | Sequence[int], tables: Sequence[dict[str, Any]]) -> list[int]:
        if not isinstance(embedding_dim, int):
            return list(embedding_dim)
        columns = max((len(t.get("columns", ())) for t in tables), default=0)
        return [embedding_dim] * max(1, columns)
