"""Bases of the modules that read and decode data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from ..._data import shuffle
from ..._data.ingraph import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._data.buffers import TensorBuffer
    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp


T = TypeVar("T")


class Source(Stage):
    """Base of the modules that make data: where it goes."""

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> None:
        super().__init__()
        if placement is not None and device is not None:
            raise ValueError(f"{type(self).__name__}: give device or placement and sbp, not both")
        if (placement is None) != (sbp is None):
            raise ValueError(f"{type(self).__name__}: placement and sbp go together")
        self.device, self.placement, self.sbp = device, placement, sbp

    def to_destination(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.placement is not None:
            return tensor.to_global(placement=self.placement, sbp=self.sbp)
        return tensor if self.device is None else tensor.to(self.device)


def seed_or_fresh(random_seed: int | None) -> int:
    """The seed, or a fresh one for None and -1."""
    return shuffle.fresh_seed() if random_seed is None or random_seed == -1 else int(random_seed)


def placed_by_reader(tensor: torch.Tensor, batch: Any) -> torch.Tensor:
    """Return the tensor where the reader that made `batch` puts tensors."""
    source = getattr(batch, "source", None)
    return tensor if source is None else source.to_destination(tensor)


class MadeOnce(Generic[T]):
    """A place in a module for an object that the first call makes.

    An attribute set in that call would go back with a refused capture, and the module would begin anew.
    """

    def __init__(self) -> None:
        self._made: list[T] = []

    def get(self, make: Callable[[], T]) -> T:
        """Return the object; make it if there is none."""
        if not self._made:
            self._made.append(make())
        return self._made[0]


class Decoder(Source):
    """Base of the modules that decode a batch: their tensors go where the reader of the batch says."""

    def _place(self, tensor: torch.Tensor, batch: Any) -> torch.Tensor:
        return placed_by_reader(tensor, batch)


def from_reader_of(batch: Any, buffer: TensorBuffer) -> TensorBuffer:
    """Note in `buffer` the reader that made `batch`: it says where the tensors of the buffer go."""
    buffer.source = getattr(batch, "source", None)
    return buffer
