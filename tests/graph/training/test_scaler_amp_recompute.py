"""Loss scaling, autocast and recomputation inside the program, against eager torch."""

import copy

import pytest
import torch
from graph_cases import assert_same_training
from torch import nn
from torch.utils.checkpoint import checkpoint

import oneflow as flow


def build_of(loss_of):
    def build(self, *batch):
        loss = loss_of(self.m, *batch)
        loss.backward()
        return loss

    return build


def training_graph(model, optimizer, build, scaler=None):
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(optimizer)
            self.config.set_backend("aten")
            if scaler is not None:
                self.set_grad_scaler(scaler)

    G.build = build
    return G()


def test_dynamic_scaler_follows_eager_through_overflow():
    torch.manual_seed(0)
    a = nn.Linear(2, 1)
    b = copy.deepcopy(a)
    oa, ob = (torch.optim.Adam(m.parameters(), lr=0.1) for m in (a, b))
    sa, sb = (torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2) for _ in range(2))
    graph = training_graph(b, ob, build_of(lambda m, x: m(x).pow(2).mean()), sb)
    for k in range(8):
        x = torch.randn(3, 2) * (float("inf") if k in (2, 5) else 1.0)
        oa.zero_grad()
        loss = a(x).pow(2).mean()
        sa.scale(loss).backward()
        sa.step(oa)
        sa.update()
        got = graph(x)
        assert torch.equal(got, loss) or (got.isnan() and loss.isnan())
        assert sa.get_scale() == sb.get_scale()
        assert torch.equal(a.weight, b.weight), k
    assert oa.state[a.weight]["step"] == ob.state[b.weight]["step"] == 6


def test_static_scaler_trains_as_eager():
    torch.manual_seed(0)
    a = nn.Linear(2, 1)
    b = copy.deepcopy(a)
    graph = training_graph(
        b,
        torch.optim.SGD(b.parameters(), lr=0.1),
        build_of(lambda m, x: m(x).sum()),
        flow.amp.StaticGradScaler(128.0),
    )
    opt = torch.optim.SGD(a.parameters(), lr=0.1)
    x = torch.randn(3, 2)
    a(x).sum().backward()
    opt.step()
    graph(x)
    assert torch.equal(a.weight, b.weight), "a power of two scales exactly"


def test_amp_is_autocast():
    model = nn.Linear(4, 4)

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.config.enable_amp(True, dtype=flow.bfloat16)
            self.config.set_backend("aten")

        def build(self, x):
            return self.m(x)

    x = torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x)
    got = G()(x)
    assert got.dtype == torch.bfloat16 and torch.equal(got, expected)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return x + self.drop(self.b(torch.relu(self.a(x))))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_results_recomputed_by_a_users_checkpoint_are_known(reentrant, mode):
    class G(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.config.set_backend("aten")
            if mode == "train":
                self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            x = x * 2
            y = checkpoint(
                lambda v: self.model(v.sin()),
                x.requires_grad_() if mode == "train" else x,
                use_reentrant=reentrant,
            )
            loss = y.square().sum().exp()
            if mode == "train":
                loss.backward()
            return loss

    graph = G(torch.nn.Linear(3, 3).requires_grad_(mode == "train"))
    graph(torch.ones(2, 3))
    again = [str(n.target) for n in graph.program.graph.nodes if n.meta.get("recomputed")]
    assert again.count("aten.sin.default") == (mode == "train") and "aten.exp.default" not in again


class Counts(nn.Module):
    """A module that reads its own writes: an average over the calls, written in several ways."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x):
        x = self.bn(x)
        self.calls += 1
        self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.average = self.average.clone()
        return (x - self.average).tanh() * (self.table + self.calls)


@pytest.mark.parametrize("whole", [False, True])
def test_recomputation_writes_buffers_once(whole):
    """As without it: torch.utils.checkpoint would average twice."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Counts(), nn.Linear(4, 4), Counts())

    def setup(graph):
        for part in (graph.model, graph.model[1]) if whole else (graph.model[1], graph.model[3]):
            part.to(flow.nn.graph.GraphModule).activation_checkpointing = True

    graph = assert_same_training(
        model,
        lambda p: torch.optim.SGD(p, lr=0.01),
        lambda m, x: m(x).pow(2).mean(),
        [(torch.randn(5, 4),) for _ in range(4)],
        setup=setup,
    )
    again = [n for n in graph.program.graph.nodes if n.meta.get("recomputed")]
    assert sum(n.target is torch.ops.aten.native_batch_norm.default for n in again) == 2 + whole


@pytest.mark.parametrize("spelling", ["config", "GraphModule"])
def test_recomputation_keeps_the_numbers(spelling):
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(4) for _ in range(3)])
    batches = [(torch.randn(5, 4),) for _ in range(10)]

    def setup(graph):
        for k in range(3):
            block = graph.model[k]
            (
                block.config if spelling == "config" else block.to(flow.nn.graph.GraphModule)
            ).activation_checkpointing = True

    plain = assert_same_training(
        copy.deepcopy(model), lambda p: torch.optim.SGD(p, lr=0.01), lambda m, x: m(x).pow(2).mean(), batches
    )
    graph = assert_same_training(
        model, lambda p: torch.optim.SGD(p, lr=0.01), lambda m, x: m(x).pow(2).mean(), batches, setup=setup
    )
    assert graph.program.count() > plain.program.count(), "nothing was recomputed"
