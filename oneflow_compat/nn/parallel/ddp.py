"""Deep path of DistributedDataParallel."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
