"""Reading and writing snapshots without an embedding: make_persistent_table_reader and
make_persistent_table_writer.
"""

from __future__ import annotations

import numpy as np
import torch

from .._errors import difference_hint
from . import snapshot


def _path(paths, function):
    if isinstance(paths, str):
        return paths
    if len(paths) != 1:
        raise NotImplementedError(
            f"{function} takes one path, for one rank {difference_hint('one-embedding-shuffle')}; found"
            f" {len(paths)} paths"
        )
    return paths[0]


def _types(function, key_type, value_type):
    if key_type not in (torch.int64, torch.int32) or value_type is not torch.float32:
        raise TypeError(
            f"{function}: keys are int64 or int32 and values float32, found {key_type} and {value_type}"
        )
    return np.int64 if key_type is torch.int64 else np.int32


class PersistentTableReader:
    """Iterates a snapshot: (keys, values) arrays, chunk by chunk.

    ValueError if the snapshot has rows of another width than storage_dim.
    """

    def __init__(self, paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size=4096):
        self._key_type = _types("make_persistent_table_reader", key_type, value_type)
        line, self._chunks = snapshot.read(_path(paths, "make_persistent_table_reader"), snapshot_name)
        if line != storage_dim:
            self._chunks.close()
            raise ValueError(
                f"make_persistent_table_reader: the snapshot has rows of {line} numbers, storage_dim is"
                f" {storage_dim}"
            )

    def __iter__(self):
        return self

    def __next__(self):
        keys, values = next(self._chunks)
        return keys.astype(self._key_type, copy=False), values

    def close(self):
        """Close the files of the table."""
        self._chunks.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class PersistentTableWriter:
    """Collects (keys, values) and makes them a snapshot on close(); nothing is written after an error inside
    `with`.
    """

    def __init__(self, paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size=4096):
        _types("make_persistent_table_writer", key_type, value_type)
        self._path, self._name, self._line, self._chunks = (
            _path(paths, "make_persistent_table_writer"),
            snapshot_name,
            storage_dim,
            {},
        )

    def write(self, keys, values):
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

    def close(self):
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

    def __enter__(self):
        return self

    def __exit__(self, error_class, *error):
        if error_class is None:
            self.close()
        self._chunks = None


def make_persistent_table_reader(
    paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size=4096
):
    """A PersistentTableReader; physical_block_size is OneFlow's disk layout and not used."""
    return PersistentTableReader(paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size)


def make_persistent_table_writer(
    paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size=4096
):
    """A PersistentTableWriter; physical_block_size is OneFlow's disk layout and not used."""
    return PersistentTableWriter(paths, snapshot_name, key_type, value_type, storage_dim, physical_block_size)
