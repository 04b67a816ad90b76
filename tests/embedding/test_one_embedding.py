"""oneflow.one_embedding: options, new rows, initial values, lifetime."""

import copy
import weakref

import numpy as np
import pytest
import torch
from embedding_cases import STORES, UNIFORM, embedding, oe, options

import oneflow as flow
from oneflow.one_embedding import initial
from oneflow.one_embedding.store import MemoryStore


# --------------------------------------------------------------------------- options
def test_option_dicts_are_oneflows():
    """Recorded from OneFlow 0.9.0."""
    assert oe.make_uniform_initializer(-1, 1) == {"type": "uniform", "low": -1, "high": 1}
    assert oe.make_normal_initializer(0, 2) == {"type": "normal", "mean": 0, "std": 2}
    assert oe.make_table(oe.make_uniform_initializer(-1, 1)) == {
        "initializer": {"type": "uniform", "low": -1, "high": 1}
    }
    table = {"path": "/x", "physical_block_size": 4096, "capacity_hint": 1000}
    lru = {"policy": "lru", "cache_memory_budget_mb": 16, "value_memory_kind": "device"}
    assert oe.make_device_mem_store_options("/x", capacity=1000) == {
        "kv_store": {
            "caches": [{"policy": "full", "capacity": 1000, "value_memory_kind": "device"}],
            "persistent_table": table,
        },
        "size_factor": 1,
        "storage_dim": -1,
    }
    assert oe.make_cached_host_mem_store_options(16, "/x", 1000)["kv_store"]["caches"] == [
        lru,
        {"policy": "full", "capacity": 1000, "value_memory_kind": "host"},
    ]
    assert oe.make_cached_ssd_store_options(16, "/x", capacity=1000, size_factor=3) == {
        "kv_store": {"caches": [lru], "persistent_table": table},
        "size_factor": 3,
        "storage_dim": -1,
    }
    both = oe.make_cached_ssd_store_options(16, "/x", host_cache_budget_mb=8)["kv_store"]["caches"]
    assert both == [lru, {"policy": "lru", "cache_memory_budget_mb": 8, "value_memory_kind": "host"}]


def test_wrong_options_are_refused(tmp_path):
    for wrong in (
        lambda: oe.make_device_mem_store_options("/x", capacity=0),
        lambda: oe.make_cached_ssd_store_options(0, "/x"),
        lambda: oe.make_table_options(3),
        lambda: oe.make_table_options([{"no": 1}]),
        lambda: embedding(tmp_path, tables=[oe.make_table_options({"type": "zeros"})]),
        lambda: embedding(tmp_path, tables=[{}]),
        lambda: oe.MultiTableEmbedding(
            "e", [4], flow.float, flow.int64, [UNIFORM], options("device", tmp_path)
        ),
        lambda: oe.MultiTableEmbedding(
            "e", 4, flow.int64, flow.int64, [UNIFORM], options("device", tmp_path)
        ),
        lambda: oe.MultiTableEmbedding(
            "e", 0, flow.float, flow.int64, [UNIFORM], options("device", tmp_path)
        ),
        lambda: oe.make_device_mem_store_options(str(tmp_path), 10, size_factor=0),
        lambda: embedding(tmp_path, tables=[]),
        lambda: embedding(tmp_path, tables=[3]),
        lambda: oe.MultiTableEmbedding("e", 4, flow.float, flow.int64, [UNIFORM], {}),
    ):
        with pytest.raises((ValueError, TypeError)):
            wrong()


def test_ids_are_a_tensor_of_whole_numbers(tmp_path):
    e = embedding(tmp_path)
    for wrong in ([1, 2], torch.tensor([1.0, 2.0])):
        with pytest.raises(TypeError, match="ids are a tensor of whole numbers"):
            e(wrong)
    assert e(torch.tensor([1, 2], dtype=torch.int32)).shape == (2, 4)


# --------------------------------------------------------------------------- rows
@pytest.mark.parametrize("kind", STORES)
def test_rows_are_made_on_first_sight(tmp_path, kind):
    e = embedding(tmp_path, kind)
    ids = torch.tensor([[5, -7, 2**62], [5, 5, -(2**63)]])
    out = e(ids)
    assert out.shape == (2, 3, 4) and out.dtype is flow.float32 and len(e.store) == 4
    assert torch.equal(out[0, 0], out[1, 0]) and not torch.equal(out[0, 0], out[0, 1])
    assert torch.equal(e(ids), out) and out.abs().max() <= 1
    e.close()


def test_first_values_do_not_depend_on_the_order(tmp_path):
    a, b = embedding(tmp_path / "a"), embedding(tmp_path / "b")
    x = a(torch.arange(100))
    for i in torch.randperm(100):
        b(i.reshape(1))
    assert torch.equal(b(torch.arange(100)), x)
    assert not torch.equal(embedding(tmp_path / "c", seed=1)(torch.arange(100)), x)


@pytest.mark.parametrize(
    "initializer,mean,std,low,high",
    [
        (oe.make_uniform_initializer(-2, 4), 1.0, 3**0.5, -2, 4),
        (oe.make_normal_initializer(1, 2), 1.0, 2.0, -12, 14),
        (oe.make_trunc_normal_initializer(0, 1, -2, 2), 0.0, 0.8796, -2, 2),
        (oe.make_constant_initializer(3), 3.0, 0.0, 3, 3),
    ],
)
def test_initial_rows_have_the_moments_of_the_initializer(initializer, mean, std, low, high):
    """The moments of 80000 numbers: five standard errors. 0.8796 is the deviation of a normal cut at two."""
    rows = initial.rows(initializer, np.arange(10000), 8, 3)
    assert rows.dtype == np.float32 and low <= rows.min() and rows.max() <= high
    assert abs(rows.mean() - mean) <= 5 * std / 80000**0.5 and abs(rows.std() - std) <= 5 * std / 80000**0.5
    if std:
        assert (
            abs(np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]) < 0.05
            and abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.05
        )


def test_tables_and_columns(tmp_path):
    tables = [oe.make_table_options(oe.make_constant_initializer(v)) for v in (1.0, 2.0)]
    e = embedding(tmp_path, tables=tables)
    assert e(torch.tensor([[1, 11], [2, 12]]))[:, :, 0].tolist() == [[1, 2], [1, 2]]
    assert e(torch.tensor([3, 13, 4]), torch.tensor([0, 1, 1], dtype=torch.uint8))[:, 0].tolist() == [1, 2, 2]
    for wrong in (
        lambda: e(torch.tensor([1, 2, 3])),
        lambda: e(torch.tensor([1]), torch.tensor([0, 1])),
        lambda: e(torch.tensor([99]), torch.tensor([5])),
    ):
        with pytest.raises(ValueError):
            wrong()
    columns = [
        oe.make_table_options([oe.make_column_options(oe.make_constant_initializer(c)) for c in (1.0, 5.0)])
    ]
    wide = oe.MultiTableMultiColumnEmbedding(
        "w", [2, 1], flow.float, flow.int64, columns, options("device", tmp_path / "w")
    )
    assert wide(torch.tensor([7])).tolist() == [[1, 1, 5]] and wide.embedding_dim == 3


def test_the_row_of_the_padding_id_stays_zero(tmp_path):
    e = embedding(tmp_path, padding_idx=0)
    opt = oe.Optimizer(flow.optim.SGD(e.parameters(), lr=1.0), [e])
    out = e(torch.tensor([0, 1]))
    assert out[0].tolist() == [0, 0, 0, 0]
    out.sum().backward()
    opt.step()
    after = e(torch.tensor([0, 1]))
    assert after[0].tolist() == [0, 0, 0, 0] and torch.equal(after[1], out[1] - 1)


def test_more_ranks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NotImplementedError, match="one rank here .*found 2 ranks"):
        embedding(tmp_path)


def test_an_embedding_is_freed_and_its_gradients_then_refused(tmp_path):
    e = embedding(tmp_path)
    out, gone = e(torch.tensor([1])), weakref.ref(e)
    del e
    assert gone() is None
    with pytest.raises(RuntimeError, match="no longer exists"):
        out.sum().backward()
    assert len(MemoryStore("x", 4)) == 0 and copy.copy(oe.make_uniform_initializer()) == {
        "type": "uniform",
        "low": 0.0,
        "high": 1.0,
    }
