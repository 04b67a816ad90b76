"""DistributedSampler: torch's, which asks oneflow.env for ranks where no process group is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data.distributed import DistributedSampler as _TorchDistributedSampler

from ... import _processes
from ..._bind import fall_through as _ft
from .sampler import _T_co

if TYPE_CHECKING:
    from torch.utils.data import Dataset


__all__ = ["DistributedSampler"]


class DistributedSampler(_TorchDistributedSampler[_T_co]):
    """Each rank's share of a dataset. num_replicas and rank default to the launcher's, 1 and 0
    without one.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        num_replicas = _processes.get_world_size() if num_replicas is None else num_replicas
        rank = _processes.get_rank() if rank is None else rank
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)


__getattr__, __dir__ = _ft(__name__, "torch.utils.data.distributed")
