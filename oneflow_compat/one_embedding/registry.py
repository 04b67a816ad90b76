"""The live embeddings of this process, by the number that their operators carry."""

from __future__ import annotations

import weakref
from typing import Protocol

import numpy as np
import torch


class LiveEmbedding(Protocol):
    """What the operators call on the embedding behind their number."""

    def rows_of(self, keys: np.ndarray, tables: np.ndarray | None) -> np.ndarray: ...
    def collect(self, keys: np.ndarray, tables: np.ndarray | None, grad: torch.Tensor) -> float: ...
    def attach(self, optimizer: torch.optim.Optimizer, in_graph: bool = False) -> None: ...
    def update(self, norm: float | None = None) -> None: ...
    def drop_gradients(self) -> None: ...


LIVE: weakref.WeakValueDictionary[int, LiveEmbedding] = weakref.WeakValueDictionary()


def live(embedding_id: int) -> LiveEmbedding:
    """Return the embedding behind an operator's number; RuntimeError if it no longer exists."""
    try:
        return LIVE[embedding_id]
    except KeyError:
        raise RuntimeError(
            "one_embedding: the embedding of this graph or tensor no longer exists; keep the module alive"
        ) from None
