"""Numbers for int64 keys, found for arrays of keys by binary search.

The keys lie in sorted runs. A run that has a quarter of the size of the run before it is merged
with that run.
"""

from __future__ import annotations

import numpy as np


class KeyIndex:
    """{int64 key: row number}; rows are numbered as they are added."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []
        self.count = 0

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Row numbers, -1 for absent keys."""
        out = np.full(len(keys), -1, np.int64)
        for run, rows in self._runs:
            at = np.searchsorted(run, keys)
            at[at == len(run)] = 0
            hit = run[at] == keys
            out[hit] = rows[at[hit]]
        return out

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Number new keys (unique, absent); the row numbers."""
        rows = np.arange(self.count, self.count + len(keys))
        self.count += len(keys)
        if len(keys):
            order = np.argsort(keys, kind="stable")
            self._runs.append((keys[order], rows[order]))
            while len(self._runs) > 1 and len(self._runs[-2][0]) <= 4 * len(self._runs[-1][0]):
                a, b = self._runs.pop(), self._runs.pop()
                merged = np.concatenate((a[0], b[0]))
                order = np.argsort(merged, kind="stable")
                self._runs.append((merged[order], np.concatenate((a[1], b[1]))[order]))
        return rows

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """(keys, row numbers), in row order."""
        if not self._runs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        keys, rows = (np.concatenate(part) for part in zip(*self._runs))
        order = np.argsort(rows)
        return keys[order], rows[order]
