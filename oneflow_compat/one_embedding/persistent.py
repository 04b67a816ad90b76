"""Reading and writing snapshots without an embedding: make_persistent_table_reader and
make_persistent_table_writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._errors import difference_hint
from . import snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence


def _path(paths: str | Sequence[str], function: str) -> str:
    if isinstance(paths, str):
        return paths
    if len(paths) != 1:
        raise NotImplementedError(
            f"{function} takes one path, for one rank {difference_hint('one-embedding-shuffle')}; found"
            f" {len(paths)} paths"
        )
    return paths[0]


def _types(function: str, key_type: torch.dtype, value_type: torch.dtype) -> type[np.signedinteger[Any]]:
    if key_type not in (torch.int64, torch.int32) or value_type is not torch.float32:
        raise TypeError(
            f"{function}: keys are int64 or int32 and values float32, found {key_type} and {value_type}"
        )
    return np.int64 if key_type is torch.int64 else np.int32


class PersistentTableReader:
    """Iterate over a snapshot: (keys, values) arrays, chunk by chunk.

    ValueError if the snapshot has rows of another width than storage_dim.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        snapshot_name: str,
        key_type: torch.dtype,
        value_type: torch.dtype,
        storage_dim: int,
        physical_block_size: int = 4096,
    ) -> None:
        self._key_type = _types("make_persistent_table_reader", key_type, value_type)
        line, self._chunks = snapshot.read(_path(paths, "make_persistent_table_reader"), snapshot_name)
        if line != storage_dim:
            self._chunks.close()
            raise ValueError(
                f"make_persistent_table_reader: the snapshot has rows of {line} numbers, storage_dim is"
                f" {storage_dim}"
            )

    def __iter__(self) -> PersistentTableReader:
        return self

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        keys, values = next(self._chunks)
        return keys.astype(self._key_type, copy=False), values

    def close(self) -> None:
        """Close the files of the table."""
        self._chunks.close()

    def __enter__(self) -> PersistentTableReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class PersistentTableWriter:
    """Collect (keys, values) and make them a snapshot on close(); nothing is written after an error inside
    `with`.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        snapshot_name: str,
        key_type: torch.dtype,
        value_type: torch.dtype,
        storage_dim: int,
        physical_block_size: int = 4096,
    ) -> None:
        _types("make_persistent_table_writer", key_type, value_type)
        self._path = _path(paths, "make_persistent_table_writer")
        self._name, self._line = snapshot_name, storage_dim
        self._chunks: Any = {}  # key -> row; None once closed

    def write(self, keys: Sequence[int] | np.ndarray, values: Sequence[Sequence[float]] | np.ndarray) -> None:
        """Add rows: keys (n,), values (n, storage_dim); a key written twice keeps the later row.

        ValueError for other shapes.
        """
        keys, values = np.asarray(keys), np.asarray(values, np.float32)
        if values.shape != (len(keys), self._line):
            raise ValueError(
                f"PersistentTableWriter.write: {len(keys)} keys need values of shape"
                f" {(len(keys), self._line)}, found {values.shape}"
            )
        self._chunks.update(zip(keys.tolist(), values.copy()))

    def close(self) -> None:
        """Make the snapshot."""
        if self._chunks is None:
            return
        keys = np.array(sorted(self._chunks), np.int64)
        rows = (
            np.stack([self._chunks[k] for k in keys.tolist()])
            if len(keys)
            else np.empty((0, self._line), np.float32)
        )
        step = snapshot.CHUNK
        snapshot.write(
            self._path,
            self._name,
            ((keys[i : i + step], rows[i : i + step]) for i in range(0, len(keys), step)),
            self._line,
        )
        self._chunks = None

    def __enter__(self) -> PersistentTableWriter:
        return self

    def __exit__(self, error_class: type[BaseException] | None, *error: object) -> None:
        if error_class is None:
            self.close()
        self._chunks = None


def make_persistent_table_reader(
    paths: str | Sequence[str],
    snapshot_name: str,
    key_type: torch.dtype,
    value_type: torch.dtype,
    storage_dim: int,
    physical_block_size: int = 4096,
) -> PersistentTableReader:
    """A PersistentTableReader; physical_block_size is OneFlow's disk layout and not used."""
    return PersistentTableReader(paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size)


def make_persistent_table_writer(
    paths: str | Sequence[str],
    snapshot_name: str,
    key_type: torch.dtype,
    value_type: torch.dtype,
    storage_dim: int,
    physical_block_size: int = 4096,
) -> PersistentTableWriter:
    """A PersistentTableWriter; physical_block_size is OneFlow's disk layout and not used."""
    return PersistentTableWriter(paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size)
