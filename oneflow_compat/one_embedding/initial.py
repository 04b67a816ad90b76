"""First values of rows: a function of (seed, id, column), so that they do not depend on the order in which
ids are seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(ids: np.ndarray, columns: int, seed: int) -> np.ndarray:
    """(ids, columns) numbers in the open interval (0, 1)."""
    with np.errstate(over="ignore"):
        start = _mix(
            ids.astype(np.int64).view(np.uint64) + np.uint64(seed % (1 << 64)) * np.uint64(0x9E3779B97F4A7C15)
        )
        steps = np.arange(1, columns + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = _mix(start[:, None] + steps[None, :])
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def rows(initializer: dict[str, Any], ids: np.ndarray, columns: int, seed: int) -> np.ndarray:
    """float32 (ids, columns) by a dict of options.py (also xavier_uniform, xavier_normal of a one-row
    matrix).
    """
    distribution = initializer.get("type")
    if distribution == "constant":
        return np.full((len(ids), columns), initializer["value"], np.float32)
    if distribution in ("uniform", "xavier_uniform"):
        low, high = (
            (initializer["low"], initializer["high"])
            if distribution == "uniform"
            else (-(bound := (6 / (1 + columns)) ** 0.5), bound)
        )
        return (low + (high - low) * _uniform(ids, columns, seed)).astype(np.float32)
    if distribution not in ("normal", "truncated_normal", "xavier_normal"):
        raise ValueError(
            f"one_embedding: initializer {initializer!r} is unknown; use the make_*_initializer functions"
        )
    mean, std = (
        (0.0, (2 / (1 + columns)) ** 0.5)
        if distribution == "xavier_normal"
        else (initializer["mean"], initializer["std"])
    )
    import torch

    u = _uniform(ids, columns, seed)
    if distribution == "truncated_normal":
        edges = torch.special.ndtr(
            torch.tensor(
                [(initializer["a"] - mean) / std, (initializer["b"] - mean) / std], dtype=torch.float64
            )
        ).numpy()
        u = edges[0] + (edges[1] - edges[0]) * u
    return (mean + std * torch.special.ndtri(torch.from_numpy(u)).numpy()).astype(np.float32)
