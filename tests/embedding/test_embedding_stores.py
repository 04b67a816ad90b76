"""oneflow.one_embedding: stores in memory and on disk, and snapshots."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from embedding_cases import STORES, UNIFORM, Net, embedding, oe
from time_limits import seconds

import oneflow as flow
from oneflow.one_embedding import snapshot
from oneflow.one_embedding.store import DiskStore, KeyIndex


def test_a_full_store_refuses_new_ids(tmp_path):
    e = oe.MultiTableEmbedding(
        "e", 4, flow.float, flow.int64, [UNIFORM], oe.make_device_mem_store_options(str(tmp_path), capacity=3)
    )
    e(torch.arange(3))
    with pytest.raises(RuntimeError, match="3 rows, 1 new ids, capacity 3"):
        e(torch.tensor([3]))


# --------------------------------------------------------------------------- snapshots
@pytest.mark.parametrize("kind", STORES)
def test_a_snapshot_brings_back_its_rows(tmp_path, kind):
    e = embedding(tmp_path, kind)
    opt = oe.Optimizer(flow.optim.SGD(e.parameters(), lr=1.0), [e])
    ids = torch.arange(300)
    first = e(ids).detach()
    e.save_snapshot("a")
    e(ids).sum().backward()
    opt.step()
    e(torch.arange(300, 310))
    assert not torch.equal(e(ids), first)
    e.load_snapshot("a")
    assert torch.equal(e(ids), first) and len(e.store) == 300
    with pytest.raises(FileNotFoundError, match="'b'.*found a"):
        e.load_snapshot("b")
    with pytest.raises(ValueError, match="plain file name"):
        e.save_snapshot("../x")
    damaged = tmp_path / "snapshots" / "a" / "rows-0.npy"
    body = bytearray(damaged.read_bytes())
    body[-1] ^= 1
    damaged.write_bytes(body)
    with pytest.raises(RuntimeError, match="rows-0.npy: altered"):
        e.load_snapshot("a")
    assert torch.equal(e(ids), first)
    e.close()


def test_snapshots_move_between_stores(tmp_path):
    pytest.importorskip("lmdb", reason="needs the package lmdb")
    a, b = embedding(tmp_path, "device"), embedding(tmp_path, "ssd", seed=9)
    first = a(torch.arange(50))
    a.save_snapshot("s")
    b.load_snapshot("s")
    assert torch.equal(b(torch.arange(50)), first)
    b.close()


def test_state_dict_carries_a_snapshot(tmp_path):
    net = Net(embedding(tmp_path / "e", tables=[UNIFORM] * 2))
    ids = torch.tensor([[1, 101]])
    want = net(ids)
    flow.save(net.state_dict(), tmp_path / "ckpt", save_as_external_data=True)
    other = Net(embedding(tmp_path / "e", tables=[UNIFORM] * 2, seed=5))
    assert not torch.equal(other(ids), want)
    other.load_state_dict(flow.load(tmp_path / "ckpt"))
    assert torch.equal(other(ids), want)
    with pytest.raises(RuntimeError, match="OneEmbeddingSnapshot"):
        other.load_state_dict(
            {"e.shadow": torch.zeros(1), **{f"l.{k}": v for k, v in other.l.state_dict().items()}}
        )


def test_a_persistent_table_gives_the_last_value_of_each_key(tmp_path):
    keys, values = np.arange(5) * 7, np.arange(20, dtype=np.float32).reshape(5, 4)
    with oe.make_persistent_table_writer([str(tmp_path)], "s", flow.int64, flow.float, 4) as writer:
        writer.write(keys, values)
        writer.write(keys[:1], values[:1] + 100)
    with oe.make_persistent_table_reader([str(tmp_path)], "s", flow.int64, flow.float, 4) as reader:
        stored = {k: v.tolist() for ks, vs in reader for k, v in zip(ks.tolist(), vs)}
    assert stored == {
        0: [100, 101, 102, 103],
        **{k: v.tolist() for k, v in zip(keys[1:].tolist(), values[1:])},
    }
    e = embedding(tmp_path)
    e.load_snapshot("s")
    assert e(torch.tensor([28])).tolist() == [values[4].tolist()]
    with pytest.raises(ValueError, match="rows of 4 numbers, storage_dim is 5"):
        oe.make_persistent_table_reader(str(tmp_path), "s", flow.int64, flow.float, 5)


# --------------------------------------------------------------------------- stores
def test_key_index_against_a_dict():
    index, truth, random = KeyIndex(), {}, np.random.RandomState(0)
    for _ in range(60):
        keys = np.unique(random.randint(-(2**40), 2**40, random.randint(1, 200)) >> random.randint(0, 38))
        new = np.array([k for k in keys.tolist() if k not in truth], np.int64)
        for k, row in zip(new.tolist(), index.add(new).tolist()):
            truth[k] = row
        probe = np.concatenate([keys, random.randint(-100, 100, 20)])
        assert index.find(probe).tolist() == [truth.get(k, -1) for k in probe.tolist()]
    assert (
        sorted(truth.values()) == list(range(index.count))
        and dict(zip(*(a.tolist() for a in index.items()))) == truth
    )


def test_disk_store_beyond_its_memory(tmp_path):
    """20000 rows through a cache of 1024, against a dict; grows LMDB's map from 64 MB; reopened from disk."""
    pytest.importorskip("lmdb", reason="needs the package lmdb")
    store, truth, random = DiskStore(str(tmp_path), 1200, 1), {}, np.random.RandomState(0)
    for _ in range(60):
        keys = np.unique(random.randint(-10000, 10000, 400))
        rows, is_stored = store.get(keys)
        for k, row, there in zip(keys.tolist(), rows, is_stored):
            assert there == (k in truth) and (not there or row[0] == row[-1] == truth[k])
        values = random.randint(0, 1 << 20, len(keys)).astype(np.float32)
        store.put(keys, np.repeat(values[:, None], 1200, 1))
        truth.update(zip(keys.tolist(), values.tolist()))
        assert len(store._cache) <= 2048
    assert len(store) == len(truth)
    store.close()
    again = DiskStore(str(tmp_path), 1200, 1)
    listed = {k: float(r[5]) for keys, rows in again.chunks() for k, r in zip(keys.tolist(), rows)}
    assert listed == truth and list(listed) == sorted(listed)
    with pytest.raises(RuntimeError, match="is the store of another embedding"):
        DiskStore(str(tmp_path), 1200, 1)
    again.close()
    with pytest.raises(RuntimeError, match="holds rows of 1200 numbers, this embedding has rows of 8"):
        DiskStore(str(tmp_path), 8, 1)


def test_a_forgotten_disk_store_is_written(tmp_path):
    pytest.importorskip("lmdb", reason="needs the package lmdb")
    e = embedding(tmp_path, "ssd", seed=1)
    rows = e(torch.arange(5))
    del e
    again = embedding(tmp_path, "ssd", seed=2)
    assert torch.equal(again(torch.arange(5)), rows)
    again.close()


def test_killed_while_training_on_disk(tmp_path):
    """SIGKILL in the middle: the store opens, every row is whole, the snapshot is whole."""
    pytest.importorskip("lmdb", reason="needs the package lmdb")
    script = textwrap.dedent("""
        import os, signal, sys, threading, time
        import numpy as np
        from oneflow.one_embedding import snapshot
        from oneflow.one_embedding.store import DiskStore
        store, n = DiskStore(sys.argv[1], 64, 1), 0
        def put(value):
            keys = np.arange(1500) + 100 * (value % 30)
            store.put(keys, np.full((1500, 64), value, np.float32))
        put(0)
        snapshot.write(sys.argv[1], "s", store.chunks(), 64)
        threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        while True:
            n += 1
            put(n)
            if n % 7 == 0:
                snapshot.write(sys.argv[1], "s", store.chunks(), 64)
    """)
    for delay in ("0.05", "0.21", "0.43"):
        path = str(tmp_path / delay)
        done = subprocess.run(
            [sys.executable, "-c", script, path, delay],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=seconds(60),
        )
        assert done.returncode == -signal.SIGKILL
        store = DiskStore(path, 64, 1)
        rows = np.concatenate([r for _, r in store.chunks()] or [np.empty((0, 64))])
        assert (rows == rows[:, :1]).all()
        line, chunks = snapshot.read(path, "s")
        kept = np.concatenate([r for _, r in chunks])
        assert line == 64 and len(kept) >= 1500 and (kept == kept[:, :1]).all()
        store.close()


def test_a_missing_lmdb_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install oneflow-compat\[embedding\]"):
        embedding(tmp_path, "ssd")
