"""oneflow.one_embedding: embeddings too large for a parameter, by any id, with their optimizers and
snapshots.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from ..optim.ftrl import Ftrl
from . import snapshot, store
from .embedding import Embedding, MultiTableEmbedding, MultiTableMultiColumnEmbedding
from .optimizer import Optimizer, SmartDecayAdam
from .options import (
    make_cached_host_mem_store_options,
    make_cached_ssd_store_options,
    make_column_options,
    make_constant_initializer,
    make_device_mem_store_options,
    make_normal_initializer,
    make_table,
    make_table_options,
    make_trunc_normal_initializer,
    make_uniform_initializer,
)
from .persistent import (
    PersistentTableReader,
    PersistentTableWriter,
    make_persistent_table_reader,
    make_persistent_table_writer,
)

__all__ = [
    "Embedding",
    "MultiTableEmbedding",
    "MultiTableMultiColumnEmbedding",
    "Optimizer",
    "SmartDecayAdam",
    "Ftrl",
    "OneEmbeddingHandler",
    "make_cached_host_mem_store_options",
    "make_cached_ssd_store_options",
    "make_column_options",
    "make_constant_initializer",
    "make_device_mem_store_options",
    "make_normal_initializer",
    "make_table",
    "make_table_options",
    "make_trunc_normal_initializer",
    "make_uniform_initializer",
    "PersistentTableReader",
    "PersistentTableWriter",
    "make_persistent_table_reader",
    "make_persistent_table_writer",
]


class OneEmbeddingHandler:
    """The store of an embedding by its options: what OneFlow's C++ handle offers, saving and loading
    snapshots.

    ValueError if the options do not tell storage_dim, the values in a row.
    """

    def __init__(
        self,
        key_value_store_option_string: str,
        local_rank_id: int = 0,
        rank_id: int = 0,
        world_size: int = 1,
    ) -> None:
        options = json.loads(key_value_store_option_string)
        line = options["storage_dim"]
        if line <= 0:
            raise ValueError("OneEmbeddingHandler: the options need storage_dim, the numbers of a row")
        self.store = store.open_store(options, line, rank_id)

    def SaveSnapshot(self, snapshot_name: str) -> None:
        """Write the table to a snapshot of this name."""
        snapshot.write(self.store.path, snapshot_name, self.store.chunks(), self.store.line)

    def LoadSnapshot(self, snapshot_name: str) -> None:
        """Restore the table from a snapshot; ValueError if there is no snapshot of this name."""
        self.store.replace(lambda: snapshot.read(self.store.path, snapshot_name)[1])
