"""The gradients of an embedding's rows, summed over backward passes until the next step uses them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch


@dataclass(frozen=True, eq=False)
class RowGradients:
    """Gradients of rows: keys (n,) int64 and unique, their tables (n,) or None, values (n, dim) float32."""

    keys: np.ndarray
    tables: np.ndarray | None
    values: torch.Tensor

    def plus(self, summand: RowGradients) -> RowGradients:
        """Return the sum. A key of both has one row."""
        keys = np.concatenate((self.keys, summand.keys))
        tables = None
        if self.tables is not None and summand.tables is not None:
            tables = np.concatenate((self.tables, summand.tables))
        values = torch.cat((self.values, summand.values))
        unique, first_index, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return RowGradients(
            unique,
            None if tables is None else tables[first_index],
            torch.zeros(len(unique), values.shape[1]).index_add_(0, torch.from_numpy(inverse), values),
        )

    def without(self, key: int) -> RowGradients:
        """Return the gradients of the other rows."""
        keep = self.keys != key
        tables = None if self.tables is None else self.tables[keep]
        return RowGradients(self.keys[keep], tables, self.values[torch.from_numpy(keep)])


class CollectedGradients:
    """The sum of the gradients since the last step, and its L2 norm."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.sum: RowGradients | None = None
        self._norm = 0.0

    def add(self, gradients: RowGradients) -> float:
        """Add the gradients of one backward pass. Return by how much the norm of the sum grows."""
        before = self._norm
        self.sum = gradients if self.sum is None else self.sum.plus(gradients)
        self._norm = float(torch.linalg.vector_norm(self.sum.values, dtype=torch.float64).float())
        return self._norm - before

    def take(self, norm: float | None = None) -> RowGradients | None:
        """Return the sum, and start anew. `norm` is that of the sum after unscaling and clipping."""
        gradients, norm_of_sum = self.sum, self._norm
        self.clear()
        if gradients is None or norm is None or not norm_of_sum:
            return gradients
        # float32 rounds the norm, so a norm that is nearly the same scales nothing
        if math.isclose(norm, norm_of_sum, rel_tol=1e-6):
            return gradients
        return replace(gradients, values=gradients.values * (norm / norm_of_sum))
