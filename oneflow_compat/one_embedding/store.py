"""Stores of rows by key: in memory, or on disk (LMDB) with the recent rows in memory."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from . import snapshot
from .key_index import KeyIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class MemoryStore:
    """All rows in one growing array."""

    def __init__(self, path: str | os.PathLike[str], line: int, capacity: int | None = None) -> None:
        self.path, self.line, self._capacity = path, line, capacity
        self._clear()

    def _clear(self) -> None:
        self._index, self._rows = KeyIndex(), np.empty((0, self.line), np.float32)

    def __len__(self) -> int:
        return self._index.count

    def get(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, found): rows of absent keys hold zeros."""
        at = self._index.find(keys)
        is_present = at >= 0
        if is_present.all():
            return self._rows[at], is_present
        out = np.zeros((len(keys), self.line), np.float32)
        out[is_present] = self._rows[at[is_present]]
        return out, is_present

    def put(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Write rows of unique keys, old and new."""
        at = self._index.find(keys)
        new = at < 0
        if new.any():
            if self._capacity is not None and self._index.count + int(new.sum()) > self._capacity:
                raise RuntimeError(
                    f"the store is full: {self._index.count} rows, {int(new.sum())} new ids, capacity"
                    f" {self._capacity}; raise capacity in its options"
                )
            at[new] = self._index.add(keys[new])
            if self._index.count > len(self._rows):
                grown = np.empty((max(self._index.count, 2 * len(self._rows), 1024), self.line), np.float32)
                grown[: len(self._rows)] = self._rows
                self._rows = grown
        self._rows[at] = rows

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        keys, at = self._index.items()
        for i in range(0, len(keys), snapshot.CHUNK):
            yield keys[i : i + snapshot.CHUNK], self._rows[at[i : i + snapshot.CHUNK]]

    def replace(self, make: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]) -> None:
        """Become what the chunks of `make()` hold; unchanged if reading them fails."""
        fresh = MemoryStore(self.path, self.line, self._capacity)
        for keys, rows in make():
            fresh.put(keys, rows)
        self._index, self._rows = fresh._index, fresh._rows

    def close(self) -> None:
        self._clear()


class DiskStore:
    """Rows in an LMDB file; the recent ones also in memory, written to disk when they leave it and on flush.

    LMDB's transactions keep the file whole through a crash; rows changed since they last reached the
    disk are lost by one, so a training run resumes from a snapshot. One process may open a folder at a time.
    """

    _open: weakref.WeakValueDictionary[str, DiskStore] = weakref.WeakValueDictionary()

    def __init__(self, path: str | os.PathLike[str], line: int, cache_bytes: int) -> None:
        try:
            import lmdb
        except ImportError:
            raise ModuleNotFoundError(
                "a store on disk needs the package lmdb, which is not installed: pip install"
                " oneflow-compat[embedding]"
            ) from None
        self.path, self.line, self._lmdb = path, line, lmdb
        folder = os.path.abspath(os.path.join(path, "rows"))
        if folder in DiskStore._open:
            raise RuntimeError(
                f"{path!r} is the store of another embedding of this process; close() that one, or give each"
                " its own persistent_path"
            )
        os.makedirs(folder, exist_ok=True)
        self._env: Any = lmdb.open(folder, map_size=1 << 26, subdir=True, readahead=False, metasync=True)
        self._folder = folder
        DiskStore._open[folder] = self
        self._limit = max(1024, cache_bytes // (4 * line + 32))
        self._lock = threading.RLock()
        self._forget()
        self._check_line()

    def _check_line(self) -> None:
        with self._env.begin() as txn:
            cursor = txn.cursor()
            if cursor.first() and len(cursor.value()) != 4 * self.line:
                kept = len(cursor.value()) // 4
                self.close()
                raise RuntimeError(
                    f"{self.path!r} holds rows of {kept} numbers, this embedding has rows of {self.line}:"
                    " another embedding_dim or size_factor"
                )

    def _forget(self) -> None:
        self._cache, self._stamp = MemoryStore(self.path, self.line), np.empty(0, np.int64)
        self._dirty, self._clock = np.empty(0, bool), 0

    def __len__(self) -> int:
        self.flush()
        return self._env.stat()["entries"]

    @staticmethod
    def _bytes(keys: np.ndarray) -> list[bytes]:
        # big-endian with the sign turned, so that LMDB's order is that of the numbers
        flat = (keys.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").tobytes()
        return [flat[i : i + 8] for i in range(0, len(flat), 8)]

    @staticmethod
    def _keys(raw: bytes) -> np.ndarray:
        return (np.frombuffer(raw, ">u8").astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)

    def get(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, found): rows of absent keys hold zeros."""
        with self._lock:
            rows, is_present = self._cache.get(keys)
            missing = np.flatnonzero(~is_present)
            if len(missing):
                read = []
                with self._env.begin(buffers=True) as txn:
                    for i, key in zip(missing.tolist(), self._bytes(keys[missing])):
                        value = txn.get(key)
                        if value is not None:
                            rows[i] = np.frombuffer(value, "<f4")
                            read.append(i)
                is_present[read] = True
                if read:
                    self._remember(keys[read], rows[read], dirty=False)
            self._touch(keys[is_present])
            return rows, is_present

    def put(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Write rows of unique keys, old and new."""
        with self._lock:
            self._remember(keys, rows, dirty=True)
            if len(self._cache) > self._limit:
                self._evict()

    def _remember(self, keys: np.ndarray, rows: np.ndarray, dirty: bool) -> None:
        self._cache.put(keys, rows)
        grow = len(self._cache) - len(self._stamp)
        if grow > 0:
            self._stamp = np.concatenate((self._stamp, np.zeros(max(grow, len(self._stamp)), np.int64)))
            self._dirty = np.concatenate((self._dirty, np.zeros(len(self._stamp) - len(self._dirty), bool)))
        self._touch(keys)
        if dirty:
            self._dirty[self._cache._index.find(keys)] = True

    def _touch(self, keys: np.ndarray) -> None:
        self._clock += 1
        self._stamp[self._cache._index.find(keys)] = self._clock

    def _evict(self) -> None:
        """Write what changed, keep the more recent half in memory."""
        self.flush()
        keys, at = self._cache._index.items()
        keep = np.argsort(self._stamp[at], kind="stable")[len(at) - self._limit // 2 :]
        stamps, rows = self._stamp[at[keep]], self._cache._rows[at[keep]].copy()
        clock = self._clock
        self._forget()
        self._remember(keys[keep], rows, dirty=False)
        self._stamp[: len(stamps)], self._clock = stamps, clock

    def flush(self) -> None:
        """Write the changed rows to disk, in one transaction."""
        with self._lock:
            keys, at = self._cache._index.items()
            changed = self._dirty[at] if len(at) else np.empty(0, bool)
            if changed.any():
                self._write(lambda: [(keys[changed], self._cache._rows[at[changed]])], clear=False)
                self._dirty[:] = False

    def _write(self, chunks: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]], clear: bool) -> None:
        """Write chunks in one transaction.

        When LMDB's map is full, it is made larger and everything written again.
        """
        while True:
            try:
                with self._env.begin(write=True) as txn:
                    if clear:
                        txn.drop(self._env.open_db(txn=txn), delete=False)
                    for keys, rows in chunks():
                        rows = np.ascontiguousarray(rows, "<f4")
                        for key, row in zip(self._bytes(keys), rows):
                            txn.put(key, row.tobytes())
                return
            except self._lmdb.MapFullError:
                self._env.set_mapsize(2 * self._env.info()["map_size"])

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        self.flush()
        with self._env.begin() as txn:
            keys, rows = [], []
            for key, value in txn.cursor():
                keys.append(key)
                rows.append(value)
                if len(keys) == snapshot.CHUNK:
                    yield (
                        self._keys(b"".join(keys)),
                        np.frombuffer(b"".join(rows), "<f4").reshape(-1, self.line),
                    )
                    keys, rows = [], []
            if keys:
                yield self._keys(b"".join(keys)), np.frombuffer(b"".join(rows), "<f4").reshape(-1, self.line)

    def replace(self, make: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]) -> None:
        """Become what the chunks of `make()` hold; unchanged if reading them fails or the process dies."""
        with self._lock:
            self._write(make, clear=True)
            self._forget()

    def close(self) -> None:
        """Write the changed rows and close the file."""
        with self._lock:
            if self._env is not None:
                self.flush()
                self._env.close()
                self._env = None
                DiskStore._open.pop(self._folder, None)

    def __del__(self) -> None:
        if getattr(self, "_env", None) is not None:
            self.close()


def open_store(options: dict[str, Any], line: int, rank: int = 0) -> MemoryStore | DiskStore:
    """The store of a make_*_store_options dict."""
    store = options["kv_store"]
    path = store["persistent_table"]["path"]
    if not isinstance(path, str):
        path = path[rank]
    full = [c for c in store["caches"] if c["policy"] == "full"]
    if full:
        return MemoryStore(path, line, full[0]["capacity"])
    return DiskStore(path, line, sum(int(c["cache_memory_budget_mb"] * 2**20) for c in store["caches"]))
