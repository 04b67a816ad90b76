"""The embeddings of this process, by the number that their operators carry."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .embedding import Embedding

LIVE: "weakref.WeakValueDictionary[int, Embedding]" = weakref.WeakValueDictionary()


def live(number: int) -> "Embedding":
    """Return the embedding behind an operator's number; RuntimeError if it no longer exists."""
    try:
        return LIVE[number]
    except KeyError:
        raise RuntimeError(
            "one_embedding: the embedding of this graph or tensor no longer exists; keep the module alive"
        ) from None
