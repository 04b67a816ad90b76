"""Bases of the modules that read and decode data files."""

from __future__ import annotations

import torch

from ..._data import shuffle
from ..._data.ingraph import Stage


class Source(Stage):
    """Base of the modules that make data: where it goes."""

    def __init__(self, device=None, placement=None, sbp=None):
        super().__init__()
        if placement is not None and device is not None:
            raise ValueError(f"{type(self).__name__}: give device or placement and sbp, not both")
        if (placement is None) != (sbp is None):
            raise ValueError(f"{type(self).__name__}: placement and sbp go together")
        self.device, self.placement, self.sbp = device, placement, sbp

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.placement is not None:
            return tensor.to_global(placement=self.placement, sbp=self.sbp)
        return tensor if self.device is None else tensor.to(self.device)


def seed_or_fresh(random_seed) -> int:
    """The seed, or a fresh one for None and -1."""
    return shuffle.fresh_seed() if random_seed is None or random_seed == -1 else int(random_seed)


class Decoder(Source):
    """Base of the modules that decode a batch: their tensors go where the reader of the batch says."""

    def _place(self, tensor, batch):
        source = getattr(batch, "source", None)
        return tensor if source is None else source.place(tensor)


def from_reader_of(batch, buffer):
    """Note in `buffer` the reader that made `batch`: it says where the tensors of the buffer go."""
    buffer.source = getattr(batch, "source", None)
    return buffer
