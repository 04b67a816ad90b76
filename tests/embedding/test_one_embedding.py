"""oneflow.one_embedding: new rows, training in eager mode and in nn.Graph, snapshots, stores."""

import copy
import os
import signal
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
import torch
from time_limits import seconds

import oneflow as flow
from oneflow.one_embedding import initial, snapshot
from oneflow.one_embedding.store import DiskStore, KeyIndex, MemoryStore

oe = flow.one_embedding
needs_lmdb = pytest.param(
    "ssd",
    marks=pytest.mark.skipif(
        not __import__("importlib").util.find_spec("lmdb"), reason="needs the package lmdb"
    ),
)
STORES = ["device", "host", needs_lmdb]
UNIFORM = oe.make_table_options(oe.make_uniform_initializer(-1, 1))


def options(kind, path, size_factor=1, storage_dim=-1):
    if kind == "device":
        return oe.make_device_mem_store_options(str(path), 10000, size_factor, storage_dim)
    if kind == "host":
        return oe.make_cached_host_mem_store_options(1, str(path), 10000, size_factor, storage_dim)
    return oe.make_cached_ssd_store_options(1, str(path), None, size_factor, storage_dim)


def embedding(path, kind="device", size_factor=1, tables=(UNIFORM,), dim=4, **more):
    return oe.MultiTableEmbedding(
        "e", dim, flow.float, flow.int64, list(tables), options(kind, path, size_factor), **more
    )


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


def test_wrong_options(tmp_path):
    for wrong in (lambda: oe.make_device_mem_store_options("/x", capacity=0), lambda: oe.make_cached_ssd_store_options(0, "/x"), lambda: oe.make_table_options(3),
                  lambda: oe.make_table_options([{"no": 1}]), lambda: embedding(tmp_path, tables=[oe.make_table_options({"type": "zeros"})]),
                  lambda: embedding(tmp_path, tables=[{}]), lambda: oe.MultiTableEmbedding("e", [4], flow.float, flow.int64, [UNIFORM], options("device", tmp_path)),
                  lambda: oe.MultiTableEmbedding("e", 4, flow.int64, flow.int64, [UNIFORM], options("device", tmp_path)),
                  lambda: oe.MultiTableEmbedding("e", 0, flow.float, flow.int64, [UNIFORM], options("device", tmp_path)),
                  lambda: oe.make_device_mem_store_options(str(tmp_path), 10, size_factor=0), lambda: embedding(tmp_path, tables=[]),
                  lambda: embedding(tmp_path, tables=[3]), lambda: oe.MultiTableEmbedding("e", 4, flow.float, flow.int64, [UNIFORM], {})):  # fmt: skip
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


@pytest.mark.parametrize("initializer,mean,std,low,high", [
    (oe.make_uniform_initializer(-2, 4), 1.0, 3**0.5, -2, 4), (oe.make_normal_initializer(1, 2), 1.0, 2.0, -12, 14),
    (oe.make_trunc_normal_initializer(0, 1, -2, 2), 0.0, 0.8796, -2, 2), (oe.make_constant_initializer(3), 3.0, 0.0, 3, 3)])  # fmt: skip
def test_initializers(initializer, mean, std, low, high):
    """The moments of 80000 numbers: five standard errors. 0.8796 is the deviation of a normal cut at two."""
    made = initial.rows(initializer, np.arange(10000), 8, 3)
    assert made.dtype == np.float32 and low <= made.min() and made.max() <= high
    assert abs(made.mean() - mean) <= 5 * std / 80000**0.5 and abs(made.std() - std) <= 5 * std / 80000**0.5
    if std:
        assert (
            abs(np.corrcoef(made[:-1, 0], made[1:, 0])[0, 1]) < 0.05
            and abs(np.corrcoef(made[:, 0], made[:, 1])[0, 1]) < 0.05
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


def test_padding(tmp_path):
    e = embedding(tmp_path, padding_idx=0)
    opt = oe.Optimizer(flow.optim.SGD(e.parameters(), lr=1.0), [e])
    out = e(torch.tensor([0, 1]))
    assert out[0].tolist() == [0, 0, 0, 0]
    out.sum().backward()
    opt.step()
    after = e(torch.tensor([0, 1]))
    assert after[0].tolist() == [0, 0, 0, 0] and torch.equal(after[1], out[1] - 1)


def test_capacity(tmp_path):
    e = oe.MultiTableEmbedding(
        "e", 4, flow.float, flow.int64, [UNIFORM], oe.make_device_mem_store_options(str(tmp_path), capacity=3)
    )
    e(torch.arange(3))
    with pytest.raises(RuntimeError, match="3 rows, 1 new ids, capacity 3"):
        e(torch.tensor([3]))


# --------------------------------------------------------------------------- training
OPTIMIZERS = {
    "sgd": (1, lambda p: flow.optim.SGD(p, lr=0.1)),
    "momentum": (2, lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9)),
    "adam": (3, lambda p: flow.optim.Adam(p, lr=0.05)),
    "adamw": (3, lambda p: flow.optim.AdamW(p, lr=0.05, weight_decay=0.1)),
    "adagrad": (2, lambda p: flow.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1)),
    "ftrl": (3, lambda p: oe.Ftrl(p, lr=0.1, lambda1=0.01)),
}


class Net(torch.nn.Module):
    def __init__(self, e):
        super().__init__()
        self.e, self.l = e, torch.nn.Linear(8, 1)
        with torch.no_grad():
            self.l.weight.fill_(0.3)

    def forward(self, ids):
        return self.l(self.e(ids).flatten(1))


def batches(count, whole=False):
    g = torch.Generator().manual_seed(1)
    for _ in range(count):
        ids = (
            torch.stack([torch.randperm(20, generator=g), 100 + torch.randperm(20, generator=g)], 1)
            if whole
            else torch.randint(0, 20, (32, 2), generator=g) + torch.tensor([0, 100])
        )
        yield ids, (ids.sum(1, keepdim=True) % 2).float()


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "adagrad", "ftrl"])
def test_rows_train_as_a_dense_embedding(tmp_path, name):
    """Every row is in every batch, so the dense optimizer of oneflow.optim on nn.Embedding must give the same numbers."""
    size_factor, make = OPTIMIZERS[name]
    e = embedding(tmp_path, size_factor=size_factor, tables=[UNIFORM] * 2)
    net = Net(e)
    table = torch.nn.Parameter(
        e(torch.cat([torch.arange(20), torch.arange(100, 120)]), torch.arange(40) // 20).detach().clone()
    )
    dense = torch.nn.Linear(8, 1)
    dense.load_state_dict(net.l.state_dict())
    e.store.replace(lambda: [])  # rows made before the optimizer have no first state
    opt, other = oe.Optimizer(make(net.parameters()), [e]), make([table, *dense.parameters()])
    for ids, y in batches(6, whole=True):
        a = ((net(ids) - y) ** 2).mean()
        b = ((dense(table[ids - torch.tensor([0, 80])].flatten(1)) - y) ** 2).mean()
        # sums of 20 numbers in another order
        assert abs(a.item() - b.item()) < 1e-5
        for loss, optimizer in ((a, opt), (b, other)):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    rows = e(torch.cat([torch.arange(20), torch.arange(100, 120)]), torch.arange(40) // 20)
    torch.testing.assert_close(rows, table, rtol=1e-4, atol=1e-5)


def _train(path, name, graph, kind="device", steps=5):
    torch.manual_seed(0)
    size_factor, make = OPTIMIZERS[name]
    e = embedding(path, kind, size_factor, [UNIFORM] * 2)
    net = Net(e)
    opt = make(net.parameters())
    schedule, losses = flow.optim.lr_scheduler.StepLR(opt, 2, 0.5), []
    if graph:

        class Step(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.net = net
                self.add_optimizer(opt, lr_sch=schedule)
                self.config.set_backend("aten")

            def build(self, ids, y):
                loss = ((self.net(ids) - y) ** 2).mean()
                loss.backward()
                return loss

        step = Step()
        losses = [step(ids, y).item() for ids, y in batches(steps)]
    else:
        rows = oe.Optimizer(opt, e)
        for ids, y in batches(steps):
            loss = ((net(ids) - y) ** 2).mean()
            loss.backward()
            rows.step()
            rows.zero_grad()
            schedule.step()
            losses.append(loss.item())
    keys = np.sort(np.concatenate([k for k, _ in e.store.chunks()]))
    out = losses, e.store.get(keys)[0]
    e.close()
    return out


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_graph_trains_as_eager(tmp_path, name):
    """The same bits: the aten backend, exact passes."""
    losses, rows = _train(tmp_path / "a", name, graph=False)
    in_graph, graph_rows = _train(tmp_path / "b", name, graph=True)
    assert in_graph == losses and np.array_equal(graph_rows, rows)
    assert losses[-1] < losses[0]


@pytest.mark.skipif(not __import__("importlib").util.find_spec("lmdb"), reason="needs the package lmdb")
def test_disk_trains_as_memory(tmp_path):
    losses, rows = _train(tmp_path / "a", "adam", False)
    on_disk, disk_rows = _train(tmp_path / "b", "adam", False, "ssd")
    assert on_disk == losses and np.array_equal(rows, disk_rows)


def test_gradients_accumulate_until_the_step(tmp_path):
    e = embedding(tmp_path)
    opt = oe.Optimizer(flow.optim.SGD(e.parameters(), lr=1.0), [e])
    before = e(torch.tensor([1])).detach()
    for _ in range(3):
        e(torch.tensor([1, 1])).sum().backward()
    assert torch.equal(e(torch.tensor([1])), before)
    opt.step()
    assert torch.equal(e(torch.tensor([1])), before - 6)
    e(torch.tensor([1])).sum().backward()
    opt.zero_grad()
    opt.step()
    assert torch.equal(e(torch.tensor([1])), before - 6)


def test_update_methods(tmp_path):
    e = embedding(tmp_path, size_factor=3)
    before = e(torch.tensor([4, 4])).detach()
    e(torch.tensor([4, 4])).sum().backward()
    ids, rows = e.shuffle_and_lookup(None)
    assert ids.tolist() == [4] and torch.equal(rows[0, :4], before[0])
    e.sgd_update({"lr": 0.5, "momentum": 0.0}, 1)
    assert torch.equal(e(torch.tensor([4])), before[:1] - 1) and e.shuffle_and_lookup()[0].tolist() == []
    e(torch.tensor([4])).sum().backward()
    e.adam_update({"lr": 0.5, "betas": (0.9, 0.999), "eps": 1e-8}, 1)
    torch.testing.assert_close(e(torch.tensor([4])), before[:1] - 1.5)
    for update in (
        lambda: e.adagrad_update({"lr": 0.1, "eps": 1e-10}, 3),
        lambda: e.ftrl_update({"lr": 0.1, "lr_power": -0.5, "lambda1": 0.0, "lambda2": 0.0, "beta": 0.0}, 4),
    ):
        last = e(torch.tensor([4])).detach()
        e(torch.tensor([4])).sum().backward()
        update()
        assert not torch.equal(e(torch.tensor([4])), last)


def test_smart_decay_adam(tmp_path):
    """Seen in every step: Adam. After a gap of two steps: the moments have decayed twice more."""
    rows = {}
    for name, make, dim in (("adam", flow.optim.Adam, 12), ("smart", oe.SmartDecayAdam, 13)):
        for gap in (False, True):
            e = oe.MultiTableEmbedding(
                "e",
                4,
                flow.float,
                flow.int64,
                [UNIFORM],
                options("device", tmp_path / name / str(gap), storage_dim=dim),
            )
            opt = oe.Optimizer(make(e.parameters(), lr=0.1), [e])
            for ids in ([1], [2] if gap else [1], [2] if gap else [1], [1]):
                e(torch.tensor(ids)).square().sum().backward()
                opt.step()
            rows[name, gap] = e.store.get(np.array([1]))[0]
    np.testing.assert_allclose(rows["smart", False][:, :12], rows["adam", False], rtol=1e-6)
    assert rows["smart", False][0, 12] == 4
    np.testing.assert_array_less(np.abs(rows["smart", True][0, 4:8]), np.abs(rows["adam", True][0, 4:8]))


def test_wrong_optimizers(tmp_path):
    e = embedding(tmp_path)
    with pytest.raises(
        ValueError, match="keeps rows of 12 numbers, the store has 4; make the store with size_factor=3"
    ):
        oe.Optimizer(flow.optim.Adam(e.parameters()), [e])
    with pytest.raises(NotImplementedError, match="RMSprop cannot update rows"):
        oe.Optimizer(flow.optim.RMSprop(e.parameters()), [e])
    with pytest.raises(ValueError, match="does not hold this embedding"):
        oe.Optimizer(flow.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), [e])
    with pytest.raises(NotImplementedError, match="amsgrad"):
        oe.Optimizer(flow.optim.Adam(e.parameters(), amsgrad=True), [e])
    with pytest.raises(TypeError, match="expected an optimizer"):
        oe.Optimizer(e, [e])
    e(torch.tensor([1])).sum().backward()  # with none of them attached


class TwoLookups(torch.nn.Module):
    """Two look-ups of one table; `rows` is an embedding of ours or torch's."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.head = rows, torch.nn.Linear(4, 1)

    def forward(self, ids, factor):
        return self.head(self.rows(ids) * self.rows(ids + 1)).mean() * factor


def twins(tmp_path, size=8):
    """The same model on a store and on a dense table of the same rows."""
    torch.manual_seed(0)
    ours = TwoLookups(embedding(tmp_path, size_factor=3))
    dense = TwoLookups(torch.nn.Embedding(size, 4))
    dense.head.load_state_dict(ours.head.state_dict())
    with torch.no_grad():
        dense.rows.weight.copy_(ours.rows(torch.arange(size)))
    return ours, dense


def graph_of(model, optimizer, scaler=None, steps=1):
    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)
            if scaler is not None:
                self.set_grad_scaler(scaler)
            self.config.set_gradient_accumulation_steps(steps)

        def build(self, ids, factor):
            loss = self.model(ids, factor).mean()
            loss.backward()
            return loss

    return Step()


SCALERS = {
    "none": lambda: None,
    "static": lambda: flow.amp.StaticGradScaler(64.0),
    "dynamic": lambda: flow.amp.GradScaler(init_scale=64.0, growth_interval=2),
}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("clip", [None, 0.02])
def test_a_graph_updates_rows_as_a_dense_table(tmp_path, steps, scaler, clip):
    """Accumulation, loss scaling and clipping treat rows like parameters; two look-ups are one step of
    Adam.
    """
    ours, dense = twins(tmp_path)
    graphs = []
    for model in (ours, dense):
        group = {"params": list(model.parameters())} | (
            {"clip_grad_max_norm": clip, "clip_grad_norm_type": 2.0} if clip else {}
        )
        graphs.append(graph_of(model, flow.optim.Adam([group], lr=0.1), SCALERS[scaler](), steps))
    ids, factor = torch.tensor([0, 2, 4, 6, 0, 1, 2, 3]), torch.ones(8, 1)
    for _ in range(4):
        a, b = (g(ids, factor) for g in graphs)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # sums of gradients in another order
    torch.testing.assert_close(ours.rows(torch.arange(8)), dense.rows.weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.head.weight, dense.head.weight, rtol=1e-4, atol=1e-5)
    assert ours.rows.shadow.item() == 0 and ours.rows._step == 4


def test_an_overflow_in_a_graph_changes_no_row(tmp_path):
    ours, _ = twins(tmp_path)
    scaler = flow.amp.GradScaler(init_scale=64.0)
    graph = graph_of(ours, flow.optim.Adam(ours.parameters(), lr=0.1), scaler)
    ids, before = torch.tensor([0, 2]), ours.rows(torch.arange(8)).detach()
    graph(ids, torch.tensor([[float("inf")]]))
    assert (
        torch.equal(ours.rows(torch.arange(8)), before)
        and ours.rows._step == 0
        and scaler.get_scale() == 32.0
    )
    graph(ids, torch.ones(1, 1))
    changed = (ours.rows(torch.arange(8)) != before).any(1).tolist()
    assert changed == [True, True, True, True, False, False, False, False]


def test_eager_scaling_and_clipping_of_rows(tmp_path):
    ours, dense = twins(tmp_path)
    wrapped = oe.Optimizer(flow.optim.SGD(ours.parameters(), lr=0.5), [ours.rows])
    plain = flow.optim.SGD(dense.parameters(), lr=0.5)
    scalers = [flow.amp.GradScaler(init_scale=64.0) for _ in range(2)]
    ids = torch.tensor([0, 2, 0, 1])
    for factor in (1.0, float("inf"), 2.0):
        for model, optimizer, scaler in zip((ours, dense), (wrapped, plain), scalers):
            optimizer.zero_grad()
            scaler.scale(model(ids, factor)).backward()
            scaler.unscale_(optimizer)
            flow.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        torch.testing.assert_close(ours.rows(torch.arange(8)), dense.rows.weight, rtol=1e-5, atol=1e-6)
    assert scalers[0].get_scale() == scalers[1].get_scale() == 32.0 and ours.rows.shadow.item() == 0


def test_rows_without_an_optimizer_in_the_graph_stay(tmp_path):
    ours, _ = twins(tmp_path)
    before, head = ours.rows(torch.arange(8)).detach(), ours.head.weight.detach().clone()
    graph_of(ours, flow.optim.SGD(ours.head.parameters(), lr=0.1))(torch.tensor([0]), torch.ones(1, 1))
    assert torch.equal(ours.rows(torch.arange(8)), before) and not torch.equal(ours.head.weight, head)


# --------------------------------------------------------------------------- snapshots
@pytest.mark.parametrize("kind", STORES)
def test_snapshots(tmp_path, kind):
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


def test_persistent_tables(tmp_path):
    keys, values = np.arange(5) * 7, np.arange(20, dtype=np.float32).reshape(5, 4)
    with oe.make_persistent_table_writer([str(tmp_path)], "s", flow.int64, flow.float, 4) as writer:
        writer.write(keys, values)
        writer.write(keys[:1], values[:1] + 100)
    with oe.make_persistent_table_reader([str(tmp_path)], "s", flow.int64, flow.float, 4) as reader:
        found = {k: v.tolist() for ks, vs in reader for k, v in zip(ks.tolist(), vs)}
    assert found == {
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
        rows, found = store.get(keys)
        for k, row, there in zip(keys.tolist(), rows, found):
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


def test_without_lmdb(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install oneflow-compat\[embedding\]"):
        embedding(tmp_path, "ssd")


def test_more_ranks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NotImplementedError, match="one rank here .*found 2 ranks"):
        embedding(tmp_path)


def test_lifetime(tmp_path):
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
