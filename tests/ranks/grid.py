"""Global tensors with a two-dimensional SBP on a grid of four ranks: a program for test_ranks.py."""

import sys
from itertools import product

import numpy as np
from checks import RANK, S0, S1, B, P, is_
from checks_of_training import Step

import oneflow as flow
from oneflow import nn

F = nn.functional
GRID = flow.placement("cpu", [[0, 1], [2, 3]])


def two_dimensions():
    x = flow.arange(16, dtype=flow.float32).reshape(4, 4).to_global(GRID, [B, B])
    values = np.arange(16.0).reshape(4, 4)
    for first in (S0, S1, B, P):
        for second in (S0, S1, B, P):
            is_(x.to_global(sbp=[first, second]), values, [first, second])
    corner = x.to_global(sbp=[S0, S1]).to_local()
    assert np.allclose(
        corner.numpy(), values[RANK // 2 * 2 : RANK // 2 * 2 + 2, RANK % 2 * 2 : RANK % 2 * 2 + 2]
    )
    is_(corner.to_global(GRID, [S0, S1]), values, [S0, S1])
    is_(flow.ones(1, 4).to_global(GRID, [S0, S0]), np.ones((4, 4)), [S0, S0])
    w = flow.nn.Parameter(x.to_global(sbp=[B, S1]) / 16)
    out = flow.matmul(x.to_global(sbp=[S0, B]), w)
    is_(out, values @ values / 16, [S0, S1])
    out.sum().backward()
    is_(w.grad, np.repeat(values.sum(0)[:, None], 4, 1), [B, S1])


def rows_of_a_table_cut_both_ways():
    ids, table = np.array([0, 5, 7, 5]), np.arange(32.0).reshape(8, 4)
    for rules in ([S1, S0], [S0, S1], [S0, S0]):
        weight = flow.tensor(table, placement=GRID, sbp=[B, B]).to_global(sbp=rules).requires_grad_()
        out = F.embedding(flow.tensor(ids, placement=GRID, sbp=[S0, B]), weight, scale_grad_by_freq=True)
        assert np.allclose(out.numpy(), table[ids]), rules
        out.sum().backward()
        assert weight.grad.numpy().sum(1).tolist() == [4, 0, 0, 0, 0, 4, 0, 4], rules
    for ids, rules, cut in product((9, [1, 9, 3]), ([S0, S0], [S0, B], [B, P]), ([B, B], [B, P])):
        table = np.arange(20.0).reshape(10, 2)
        weight = flow.tensor(table, placement=GRID, sbp=[B, B]).to_global(sbp=rules).detach().requires_grad_()
        out = F.embedding(flow.tensor(ids, placement=GRID, sbp=[B, B]).to_global(sbp=cut), weight)
        assert np.allclose(out.numpy(), table[ids]), (ids, rules, cut)
        out.sum().backward()
        assert np.allclose(weight.grad.numpy().sum(1), 2.0 * np.isin(np.arange(10), ids)), (ids, rules, cut)


def filled_where_they_are():
    """Writing values into a tensor keeps its SBP: DTensor uses the SBP of the tensor that it saw first."""
    for place in (GRID, flow.placement.all("cpu"), flow.placement("cpu", [1])):
        for rules in product((S0, S1, B, P), repeat=place.ranks.ndim):
            x = flow.ones(8, 8, placement=place, sbp=rules)
            nn.init.eye_(x)
            assert x.placement == place, place
            is_(x, np.eye(8), rules)


def selections_and_padding():
    """Of parts of a sum by split indices, of two dimensions that are split: DTensor of torch 2.11 has other
    results, or none.
    """
    values, ids = np.arange(64.0).reshape(8, 8), np.array([7, 3, 2, 7, 2, 2, 2, 7])
    data, index = (
        flow.tensor(values, placement=GRID, sbp=[B, B]),
        flow.tensor(ids, placement=GRID, sbp=[B, B]),
    )
    for rules in ([S0, P], [P, S1], [B, P], [P, P], [S0, S1], [S0, S0]):
        x = data.to_global(sbp=rules)
        assert np.array_equal(F.pad(x, (1, 0, 0, 2)).numpy(), np.pad(values, ((0, 2), (1, 0)))), rules
        for cut in ([S0, B], [B, S0], [S0, S0]):
            i = index.to_global(sbp=cut)
            assert np.array_equal(flow.index_select(x, 0, i).numpy(), values[ids]), (rules, cut)
            assert np.array_equal(x[:, i].numpy(), values[:, ids]), (rules, cut)
    # one of each row, one of each column
    for dim, rules in (
        (1, [P, S0]),
        (1, [S1, S0]),
        (0, [P, S1]),
        (0, [S0, S1]),
    ):
        own = index.unsqueeze(dim)
        assert np.array_equal(
            data.to_global(sbp=rules).gather(dim, own).numpy(), np.take_along_axis(values, own.numpy(), dim)
        ), (rules, dim)


def convolutions_of_samples_on_all_ranks():
    flow.manual_seed(0)
    for make, uneven in (
        (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), 0),
        (lambda: nn.ConvTranspose2d(4, 6, 2, stride=2, bias=False), 2),
    ):
        x, module, placed = flow.randn(8 - uneven, 4, 5, 5), make(), make()
        placed.load_state_dict(module.state_dict())
        placed.to_global(GRID, [B, B])
        x = x.to_global(GRID, [B, B]).to_local()  # the same on all ranks
        data = x.to_global(GRID, [B, B]).to_global(sbp=[S0, S0]).requires_grad_()
        x.requires_grad_()
        for own, other in zip(module.parameters(), placed.parameters()):
            own.data = other.data.to_local()
        want, out = module(x), placed(data)
        assert np.allclose(out.numpy(), want.detach().numpy(), atol=1e-5) and (
            uneven or list(out.sbp) == [S0, S0]
        )
        (want**2).sum().backward(), (out**2).sum().backward()
        for own, other in zip((x, *module.parameters()), (data, *placed.parameters())):
            assert np.allclose(other.grad.numpy(), own.grad.numpy(), rtol=1e-4, atol=1e-4)


def numbers_of_ranks_elsewhere():
    """Means of tensors that half of the ranks hold have their shape on all."""
    last = flow.placement("cpu", [2, 3])
    x = flow.arange(8.0).to_global(flow.placement.all("cpu"), B).to_global(last, S0)

    class Means(nn.Graph):
        def build(self, x):
            return (
                x.mean(),
                (x * 2).mean(0).to_global(sbp=B),
                (x - x.mean()).square().mean(),
                x.to_global(sbp=B).max(),
            )

    graph = Means()
    for out in (graph.build(x), graph(x), graph(x)):
        assert [tuple(t.shape) for t in out] == [()] * 4 and [t.item() for t in out] == [
            3.5,
            7.0,
            5.25,
            7.0,
        ], out


class Transformer(nn.Module):
    """One layer as libai cuts it: samples over the first dimension of the grid, heads and channels over the
    second.
    """

    def __init__(self, placed):
        super().__init__()
        flow.manual_seed(0)
        self.placed = placed
        part = lambda rules, *shape: nn.Parameter(self.move(flow.randn(*shape).double() / 4, [B, B], rules))
        self.table, self.scale, self.shift = part([B, S0], 16, 8), part([B, B], 8), part([B, B], 8)
        self.qkv, self.qkv_bias, self.out = part([B, S1], 8, 24), part([B, S0], 24), part([B, S0], 8, 8)

    def move(self, x, first, rules=None):
        if not self.placed:
            return x
        x = x if x.is_global else x.to_global(GRID, first)
        return x.to_global(sbp=rules or first)

    def forward(self, ids):
        n, length = ids.shape
        x = self.move(F.embedding(ids, self.table), [S0, B])
        h = (
            flow.matmul(self.move(F.layer_norm(x, (8,), self.scale, self.shift), [S0, B]), self.qkv)
            + self.qkv_bias
        )
        q, k, v = flow.chunk(h.view(n, length, 4, 6).permute(0, 2, 1, 3), 3, dim=-1)
        h = flow.matmul(flow.softmax(flow.matmul(q, k.transpose(-1, -2)), -1), v)
        x = x + self.move(flow.matmul(h.permute(0, 2, 1, 3).reshape(n, length, 8), self.out), [S0, B])
        return flow.matmul(x, self.table.transpose(0, 1)).reshape(n * length, 16)


def training_on_a_grid():
    """Eager with clipping, and a graph with ZeRO and gradient accumulation, both equal to one rank."""
    ids = flow.tensor(np.random.RandomState(0).randint(0, 16, (3, 8, 5)))
    losses, states = [], []
    for placed in (False, True):
        model = Transformer(placed)
        optimizer = flow.optim.AdamW(model.parameters(), lr=0.01)
        place = lambda x: model.move(x, [B, B], [S0, B])
        for step in ids:
            loss = F.cross_entropy(
                model(place(step[:, :-1].contiguous())), place(step[:, 1:].contiguous()).reshape(-1)
            )
            optimizer.zero_grad()
            loss.backward()
            losses.append((loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 0.1).item()))
            optimizer.step()
        model = Transformer(placed)
        graph = Step(model, flow.optim.LAMB(model.parameters(), lr=0.01))
        graph.config.enable_zero(True, stage=2, shard_min_size=8)
        graph.config.set_gradient_accumulation_steps(2)
        for step in ids:
            graph(place(step[:, :-1].contiguous()), place(step[:, 1:].contiguous().reshape(-1)))
        states.append({k: v.numpy() for k, v in model.state_dict().items()})
    assert np.allclose(losses[:3], losses[3:], rtol=1e-9), losses
    for name, value in states[0].items():
        assert np.allclose(states[1][name], value, atol=1e-8), name


def stages_are_clipped_together():
    """Two stages on two ranks each: the norm is that of all gradients, and a state read by one rank goes to
    its parameters.
    """
    first, second = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
    data = np.random.RandomState(0).randn(3, 8, 4).astype(np.float32)

    class Model(nn.Module):
        def __init__(self, placed):
            super().__init__()
            flow.manual_seed(0)
            self.a, self.b, self.placed = nn.Linear(4, 8), nn.Linear(8, 3), placed
            if placed:
                self.a.to_global(first, B), self.b.to_global(second, B)

        def forward(self, x):
            h = flow.relu(self.a(x.to_global(first, B) if self.placed and not x.is_global else x))
            return self.b(h.to_global(placement=second, sbp=S0) if self.placed else h).square().mean()

    class Steps(nn.Graph):
        def __init__(self, model, optimizer):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    for in_graph in (False, True):
        results = []
        for placed in (False, True):
            model = Model(placed)
            group = {
                "params": list(model.parameters()),
                "clip_grad_max_norm": 0.1,
                "clip_grad_norm_type": 2.0,
            }
            optimizer = flow.optim.AdamW([group], lr=0.05)
            graph = Steps(model, optimizer) if in_graph else None
            for x in map(flow.tensor, data):
                if in_graph:
                    graph(x.to_global(first, B) if placed else x)
                    continue
                optimizer.zero_grad()
                model(x).backward()
                optimizer.clip_grad()
                optimizer.step()
            if placed and not in_graph:
                read = optimizer.state_dict()
                read["state"] = {
                    i: {k: v.to_global(placement=first, sbp=B) if v.is_global else v for k, v in s.items()}
                    for i, s in read["state"].items()
                }
                optimizer.load_state_dict(read)
                optimizer.step()
            elif not in_graph:
                optimizer.step()
            results.append([p.detach().numpy() for p in model.parameters()])
        for a, b in zip(*results):
            assert np.allclose(a, b, atol=1e-5), in_graph


for check in sys.argv[1:]:
    globals()[check]()
