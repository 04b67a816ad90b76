"""What describes an embedding: initializers, tables, columns, stores. Plain dicts, the same as OneFlow's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "make_uniform_initializer",
    "make_normal_initializer",
    "make_constant_initializer",
    "make_trunc_normal_initializer",
    "make_table_options",
    "make_table",
    "make_column_options",
    "make_device_mem_store_options",
    "make_cached_host_mem_store_options",
    "make_cached_ssd_store_options",
]


def make_uniform_initializer(low: float = 0.0, high: float = 1.0) -> dict[str, Any]:
    """Rows start with numbers between low and high."""
    return {"type": "uniform", "low": low, "high": high}


def make_normal_initializer(mean: float = 0.0, std: float = 1.0) -> dict[str, Any]:
    """Rows start with normal numbers."""
    return {"type": "normal", "mean": mean, "std": std}


def make_constant_initializer(value: float) -> dict[str, Any]:
    """Rows start with one value everywhere."""
    return {"type": "constant", "value": value}


def make_trunc_normal_initializer(
    mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> dict[str, Any]:
    """Rows start with normal numbers between a and b."""
    return {"type": "truncated_normal", "mean": mean, "std": std, "a": a, "b": b}


def make_column_options(initializer: dict[str, Any]) -> dict[str, Any]:
    """A column of a MultiTableMultiColumnEmbedding: its initializer."""
    return {"initializer": initializer}


def make_table_options(param: dict[str, Any] | Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A table: an initializer, or a list of column options.

    ValueError for anything else.
    """
    if isinstance(param, dict):
        return {"initializer": param}
    if isinstance(param, (list, tuple)):
        for column in param:
            if not isinstance(column, dict) or "initializer" not in column:
                raise ValueError(
                    f"make_table_options: a column is what make_column_options gives, found {column!r}"
                )
        return {"columns": list(param)}
    raise ValueError(f"make_table_options: expected an initializer or a list of columns, found {param!r}")


make_table = make_table_options


def _store(
    caches: list[dict[str, Any]],
    persistent_path: str | Sequence[str],
    capacity: int | None,
    size_factor: int,
    storage_dim: int,
    physical_block_size: int,
) -> dict[str, Any]:
    if not isinstance(persistent_path, (str, list, tuple)):
        raise TypeError(
            f"persistent_path is a folder or a list of folders, one per rank; found {persistent_path!r}"
        )
    if size_factor < 1 and storage_dim < 1:
        raise ValueError(f"a store's size_factor must be at least 1, found {size_factor!r}")
    table = {"path": persistent_path, "physical_block_size": physical_block_size}
    if capacity is not None:
        table["capacity_hint"] = int(capacity)
    return {
        "kv_store": {"caches": caches, "persistent_table": table},
        "size_factor": size_factor,
        "storage_dim": storage_dim,
    }


def make_device_mem_store_options(
    persistent_path: str | Sequence[str],
    capacity: int,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
) -> dict[str, Any]:
    """All rows in memory (the host's here), at most `capacity`; snapshots go to persistent_path.

    size_factor: what the optimizer keeps per row, in embeddings: 1 SGD, 2 momentum and Adagrad, 3 Adam and
    FTRL; or storage_dim numbers.

    `capacity` counts rows. ValueError unless it is positive.
    """
    if not capacity or capacity <= 0:
        raise ValueError(f"make_device_mem_store_options: capacity must be positive, found {capacity!r}")
    return _store(
        [{"policy": "full", "capacity": int(capacity), "value_memory_kind": "device"}],
        persistent_path,
        capacity,
        size_factor,
        storage_dim,
        physical_block_size,
    )


def make_cached_host_mem_store_options(
    cache_budget_mb: float,
    persistent_path: str | Sequence[str],
    capacity: int,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
) -> dict[str, Any]:
    """All rows in host memory, at most `capacity`.

    The device cache of OneFlow (cache_budget_mb) does not exist here.

    `capacity` counts rows, `cache_budget_mb` is in MiB. ValueError unless `capacity` is positive.
    """
    _positive("make_cached_host_mem_store_options", cache_budget_mb)
    if not capacity or capacity <= 0:
        raise ValueError(f"make_cached_host_mem_store_options: capacity must be positive, found {capacity!r}")
    caches = [
        _lru(cache_budget_mb, "device"),
        {"policy": "full", "capacity": int(capacity), "value_memory_kind": "host"},
    ]
    return _store(caches, persistent_path, capacity, size_factor, storage_dim, physical_block_size)


def make_cached_ssd_store_options(
    cache_budget_mb: float,
    persistent_path: str | Sequence[str],
    capacity: int | None = None,
    size_factor: int = 1,
    storage_dim: int = -1,
    physical_block_size: int = 4096,
    host_cache_budget_mb: float = 0,
) -> dict[str, Any]:
    """Rows on disk (LMDB; pip install oneflow-compat[embedding]), the recent ones in cache_budget_mb +
    host_cache_budget_mb of memory.
    """
    _positive("make_cached_ssd_store_options", cache_budget_mb)
    caches = [_lru(cache_budget_mb, "device")]
    if host_cache_budget_mb > 0:
        caches.append(_lru(host_cache_budget_mb, "host"))
    return _store(caches, persistent_path, capacity, size_factor, storage_dim, physical_block_size)


def _lru(megabytes: float, memory_type: str) -> dict[str, Any]:
    return {"policy": "lru", "cache_memory_budget_mb": megabytes, "value_memory_kind": memory_type}


def _positive(function: str, cache_budget_mb: float) -> None:
    if cache_budget_mb <= 0:
        raise ValueError(f"{function}: cache_budget_mb must be positive, found {cache_budget_mb!r}")


def check_arguments(
    name: str,
    embedding_dim: int | Sequence[int],
    dtype: torch.dtype,
    key_type: torch.dtype,
    tables: Sequence[dict[str, Any]],
    store_options: dict[str, Any],
) -> None:
    """Raise TypeError or ValueError for arguments that describe no embedding."""
    widths = [embedding_dim] if isinstance(embedding_dim, int) else embedding_dim
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"one_embedding {name!r}: dtype must be a floating type of at most 32 bits, found {dtype}"
        )
    if key_type not in (torch.int64, torch.int32, torch.uint8):
        raise TypeError(f"one_embedding {name!r}: key_type must be int64 or int32, found {key_type}")
    if min(widths, default=0) < 1:
        raise ValueError(f"one_embedding {name!r}: embedding_dim must be positive, found {embedding_dim}")
    if not tables or not all(isinstance(t, dict) for t in tables):
        raise ValueError(
            f"one_embedding {name!r}: tables is a list of what make_table_options gives, found {tables!r}"
        )
    if not isinstance(store_options, dict) or "kv_store" not in store_options:
        raise TypeError(
            f"one_embedding {name!r}: store_options is what a make_*_store_options gives, found"
            f" {store_options!r}"
        )
