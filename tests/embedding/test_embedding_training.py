"""oneflow.one_embedding: training of rows in eager mode and in nn.Graph."""

import numpy as np
import pytest
import torch
from embedding_cases import UNIFORM, Net, embedding, oe, options

import oneflow as flow

# --------------------------------------------------------------------------- training
OPTIMIZERS = {
    "sgd": (1, lambda p: flow.optim.SGD(p, lr=0.1)),
    "momentum": (2, lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9)),
    "adam": (3, lambda p: flow.optim.Adam(p, lr=0.05)),
    "adamw": (3, lambda p: flow.optim.AdamW(p, lr=0.05, weight_decay=0.1)),
    "adagrad": (2, lambda p: flow.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1)),
    "ftrl": (3, lambda p: oe.Ftrl(p, lr=0.1, lambda1=0.01)),
}


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
    """Every row is in every batch, so the dense optimizer of oneflow.optim on nn.Embedding must give the same
    numbers.
    """
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


def test_update_methods_write_the_rows_with_gradients(tmp_path):
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


def test_optimizers_that_do_not_fit_are_refused(tmp_path):
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
