"""What describes an embedding: initializers, tables, columns, stores. Plain dicts, the same as OneFlow's."""

from __future__ import annotations

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


def make_uniform_initializer(low=0.0, high=1.0):
    """Rows start with numbers between low and high."""
    return {"type": "uniform", "low": low, "high": high}


def make_normal_initializer(mean=0.0, std=1.0):
    """Rows start with normal numbers."""
    return {"type": "normal", "mean": mean, "std": std}


def make_constant_initializer(value):
    """Rows start with one value everywhere."""
    return {"type": "constant", "value": value}


def make_trunc_normal_initializer(mean=0.0, std=1.0, a=-2.0, b=2.0):
    """Rows start with normal numbers between a and b."""
    return {"type": "truncated_normal", "mean": mean, "std": std, "a": a, "b": b}


def make_column_options(initializer):
    """A column of a MultiTableMultiColumnEmbedding: its initializer."""
    return {"initializer": initializer}


def make_table_options(param):
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


def _store(caches, persistent_path, capacity, size_factor, storage_dim, physical_block_size):
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
    persistent_path, capacity, size_factor=1, storage_dim=-1, physical_block_size=4096
):
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
    cache_budget_mb, persistent_path, capacity, size_factor=1, storage_dim=-1, physical_block_size=4096
):
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
    cache_budget_mb,
    persistent_path,
    capacity=None,
    size_factor=1,
    storage_dim=-1,
    physical_block_size=4096,
    host_cache_budget_mb=0,
):
    """Rows on disk (LMDB; pip install oneflow-compat[embedding]), the recent ones in cache_budget_mb +
    host_cache_budget_mb of memory.
    """
    _positive("make_cached_ssd_store_options", cache_budget_mb)
    caches = [_lru(cache_budget_mb, "device")]
    if host_cache_budget_mb > 0:
        caches.append(_lru(host_cache_budget_mb, "host"))
    return _store(caches, persistent_path, capacity, size_factor, storage_dim, physical_block_size)


def _lru(megabytes, memory_type):
    return {"policy": "lru", "cache_memory_budget_mb": megabytes, "value_memory_kind": memory_type}


def _positive(function, cache_budget_mb):
    if cache_budget_mb <= 0:
        raise ValueError(f"{function}: cache_budget_mb must be positive, found {cache_budget_mb!r}")
