"""oneflow.nn.RawReader: batches of fixed-size records from plain binary files."""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch

from ... import _processes
from ..._data.buffers import to_numpy_dtype
from .record_sources import MadeOnce, Source, seed_or_fresh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp


__all__ = ["RawReader"]


class RawReader(Source):
    """Tensors (batch_size, *shape) of `dtype` from records that lie one after the other in `files`, without
    end.

    random_shuffle reorders blocks of about shuffle_block_size bytes each epoch (0: single records). The order
    for a random_seed is not that of OneFlow (difference row raw-reader-order). A file that does not hold
    whole records is a ValueError. Under a launcher each rank reads every world_size-th record.
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        shape: int | Sequence[int],
        dtype: torch.dtype,
        batch_size: int,
        random_shuffle: bool = True,
        shuffle_block_size: int = 0,
        random_seed: int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> None:
        super().__init__(None, placement, sbp)
        self._files = [os.fspath(f) for f in ([files] if isinstance(files, (str, os.PathLike)) else files)]
        self._shape, self._dtype, self.batch_size = (
            tuple(np.atleast_1d(shape).tolist()),
            to_numpy_dtype(dtype),
            batch_size,
        )
        size = int(np.prod(self._shape)) * self._dtype.itemsize
        if batch_size < 1 or size < 1 or not self._files:
            raise ValueError(
                "RawReader: needs a file, a batch size and a record of at least one element, found"
                f" {self._files}, {batch_size}, {self._shape}"
            )
        counts = []
        for file in self._files:
            count, rest = divmod(os.path.getsize(file), size)
            if rest:
                raise ValueError(
                    f"RawReader: {file} has {count * size + rest} bytes, no multiple of a record's {size}"
                    f" ({self._shape} of {self._dtype})"
                )
            counts.append(count)
        self._ends = list(accumulate(counts))
        if not self._ends[-1]:
            raise ValueError(f"RawReader: no record in {', '.join(self._files)}")
        self._block = max(shuffle_block_size // size, 1)
        self._options = (random_shuffle, random_seed)
        self._order: MadeOnce[Iterator[int]] = MadeOnce()

    def _epochs(self) -> Iterator[int]:
        """Record numbers of this rank, epoch after epoch."""
        shuffled, seed = self._options
        random = np.random.default_rng(seed_or_fresh(seed)) if shuffled else None
        rank, world, total = _processes.get_rank(), _processes.get_world_size(), self._ends[-1]
        turn = 0
        while True:
            starts = np.arange(0, total, self._block)
            if random is not None:
                random.shuffle(starts)
            for start in starts:
                for index in range(start, min(start + self._block, total)):
                    if turn % world == rank:
                        yield index
                    turn += 1

    def _record(self, index: int) -> np.ndarray:
        at = bisect_right(self._ends, index)
        count = int(np.prod(self._shape))
        position = index - (self._ends[at - 1] if at else 0)
        return np.fromfile(
            self._files[at], self._dtype, count, offset=int(position) * count * self._dtype.itemsize
        )

    def forward(self) -> torch.Tensor:
        rows = np.stack([self._record(next(self._order.get(self._epochs))) for _ in range(self.batch_size)])
        return self.to_destination(torch.from_numpy(rows.reshape((self.batch_size, *self._shape))))
