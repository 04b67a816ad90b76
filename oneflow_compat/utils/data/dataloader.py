"""DataLoader and default_collate.

Differs from torch: numpy float64 scalars are collated to float32, as OneFlow does (numpy arrays and
Python floats stay float64); prefetch_factor=2, OneFlow's default, is accepted without workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    _DatasetKind,  # noqa: F401
    get_worker_info,
)
from torch.utils.data import DataLoader as _TorchDataLoader
from torch.utils.data._utils.collate import collate, default_collate_fn_map
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ..._bind import fall_through as _ft
from .sampler import Sampler, _T_co

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


__all__ = [
    "DataLoader",
    "default_collate",
    "get_worker_info",
    "BatchSampler",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "SequentialSampler",
    "Sampler",
]


def _float64_scalars(batch: Sequence[Any], *, collate_fn_map: object = None) -> torch.Tensor:
    return torch.tensor(np.asarray(batch, dtype=np.float64), dtype=torch.get_default_dtype())


_COLLATE = {np.float64: _float64_scalars, **default_collate_fn_map}


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack a list of samples into one batch.

    Tensors, numpy arrays and scalars, numbers become tensors; strings and bytes stay lists; mappings,
    named tuples and sequences are collated inside. np.float64 scalars become the default dtype
    (float32), np.float64 arrays and Python floats float64. TypeError names an element that has no rule.
    """
    return collate(batch, collate_fn_map=_COLLATE)


class DataLoader(_TorchDataLoader[_T_co]):
    """torch's DataLoader under OneFlow's defaults: shuffle=False, prefetch_factor=2.

    A collate_fn of None means `default_collate` above, and no collation for batch_size=None.
    torch's further keywords (pin_memory_device, in_order) are accepted. Workers are processes
    (num_workers > 0); the order of batches does not depend on how many.
    """

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        **kwargs: Any,
    ) -> None:
        if collate_fn is None and (batch_size is not None or batch_sampler is not None):
            collate_fn = default_collate
        if num_workers == 0 and prefetch_factor == 2:
            prefetch_factor = None
        super().__init__(
            dataset,
            batch_size,
            shuffle or None,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            **kwargs,
        )


def _next_batch(iterator: Iterator[Any]) -> Any:
    """The next batch: `iterator.next()`, as OneFlow's iterators and older torch's have it."""
    return next(iterator)


if not hasattr(_BaseDataLoaderIter, "next"):
    _BaseDataLoaderIter.next = _next_batch

__getattr__, __dir__ = _ft(__name__, "torch.utils.data.dataloader")
