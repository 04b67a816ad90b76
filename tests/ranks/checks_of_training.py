"""Checks of training, eager and in graphs, which every rank runs; see program.py."""

import warnings
from unittest import mock

import numpy as np
from checks import ALL, S0, S1, WORLD, B, is_

import oneflow as flow
from oneflow import nn
from oneflow._graph import eager_calls


def network():
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 4))


def batches():
    flow.manual_seed(1)
    return [(flow.randn(4, 6), flow.randint(0, 4, (4,))) for _ in range(4)]


def trained(model, optimizer, to_global, clip=0.5):
    losses = []
    for x, y in batches():
        loss = nn.functional.cross_entropy(model(to_global(x)), to_global(y))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS = {
    "sgd": lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: flow.optim.Adam(p, lr=0.01),
    "adamw": lambda p: flow.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "lamb": lambda p: flow.optim.LAMB(p, lr=0.01),
    "adagrad": lambda p: flow.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: flow.optim.RMSprop(p, lr=0.01),
}


def training_equals_one_rank(names=("sgd", "adamw")):
    """Data parallel, every rank the same, and parameters cut as ZeRO does, with clipping."""
    for name in names:
        make = OPTIMIZERS[name]
        model = network()
        expected = trained(model, make(model.parameters()), lambda t: t)
        for rule, data in ((B, S0), (B, B), (S0, B), (S0, S0)):
            spread = network()
            spread = spread.to_global(ALL, B).to_global(sbp=rule)
            got = trained(
                spread, make(spread.parameters()), lambda t: t.to_global(ALL, B).to_global(sbp=data)
            )
            assert np.allclose(got, expected, rtol=1e-4), (name, rule, data, got, expected)
            for p, q in zip(spread.parameters(), model.parameters()):
                assert p.sbp == (rule,) and p.is_leaf and p.grad.sbp == (rule,)
                assert np.allclose(p.numpy(), q.detach().numpy(), atol=1e-4), name


def every_optimizer_equals_one_rank():
    training_equals_one_rank(OPTIMIZERS)


class Step(nn.Graph):
    def __init__(self, model, optimizer=None, scheduler=None, backend="aten"):
        super().__init__()
        self.model = model
        self.config.set_backend(backend)
        self.training_step = optimizer is not None
        if optimizer is not None:
            self.add_optimizer(optimizer, **({} if scheduler is None else {"lr_sch": scheduler}))

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        if self.training_step:
            loss.backward()
        return loss


def graphs_equal_one_rank(names=("sgd", "adamw"), backend="aten"):
    for name in names:
        make = OPTIMIZERS[name]
        model = network()
        alone = Step(model, make(model.parameters()))
        expected = [alone(x, y).item() for x, y in batches()]
        for rule, data in ((B, S0), (S0, B)):
            spread = network().to_global(ALL, B).to_global(sbp=rule)
            graph = Step(spread, make(spread.parameters()), backend=backend)
            to_global = lambda t: t.to_global(ALL, B).to_global(sbp=data)
            losses = [graph(to_global(x), to_global(y)) for x, y in batches()]
            assert all(loss.is_global for loss in losses)
            assert np.allclose([loss.item() for loss in losses], expected, rtol=1e-4), (name, rule, data)
            assert len(graph._engine.programs) <= 2
            for p, q in zip(spread.parameters(), model.parameters()):
                assert (
                    p.sbp == (rule,)
                    and p.grad is None
                    and np.allclose(p.numpy(), q.detach().numpy(), atol=1e-4)
                ), name


def a_graph_gives_no_needless_warning():
    model = network().to_global(ALL, B)
    graph = Step(model, OPTIMIZERS["sgd"](model.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for x, y in batches():
            graph(x.to_global(ALL, B).to_global(sbp=S0), y.to_global(ALL, B).to_global(sbp=S0))


def every_optimizer_in_a_graph():
    graphs_equal_one_rank(OPTIMIZERS)


def graphs_of_inductor():
    graphs_equal_one_rank(("adamw",), "inductor")
    graphs_equal_one_rank(("sgd",), "auto")


def moved_twice_with_inductor():
    """Ranks with and without a shard make both calls."""

    class Twice(nn.Graph):
        def __init__(self, backend):
            super().__init__()
            self.config.set_backend(backend)

        def build(self, x):
            x, last = x * 2, flow.placement("cpu", [1])
            return x.to_global(placement=last, sbp=B).exp() + x.to_global(placement=last, sbp=B).sin()

    x = flow.arange(6.0).to_global(flow.placement("cpu", [0]), B)
    results = [Twice(backend)(x).numpy() for backend in ("aten", "inductor")]
    assert np.allclose(*results), results


def zero_splits_the_state():
    graph = _graph_with_split_state()
    assert any("reduce_scatter" in str(n.target) for n in graph._engine.program.graph.nodes)


def zero_splits_the_state_of_calls_in_eager_mode():
    with mock.patch.object(eager_calls, "why_unobserved", return_value="this test has no frame hook"):
        assert _graph_with_split_state()._engine.program is None


def _graph_with_split_state():
    """Train with ZeRO, compare with one process, and return the last graph."""
    for name in ("sgd", "adamw", "lamb"):
        make = OPTIMIZERS[name]
        model = network()
        alone = Step(model, make(model.parameters()))
        expected = [alone(x, y).item() for x, y in batches()]
        spread = network().to_global(ALL, B)
        optimizer = make(spread.parameters())
        graph = Step(spread, optimizer)
        graph.config.enable_zero(True, stage=2, shard_min_size=8)
        to_global = lambda t: t.to_global(ALL, B).to_global(sbp=S0)
        assert np.allclose(
            [graph(to_global(x), to_global(y)).item() for x, y in batches()], expected, rtol=1e-4
        ), name
        split = 0
        for p, q in zip(spread.parameters(), model.parameters()):
            assert p.sbp == (B,) and np.allclose(p.numpy(), q.detach().numpy(), atol=1e-4), name
            for value in optimizer.state[p].values():
                if getattr(value, "is_global", False) and value.dim():
                    large = p.numel() >= 16
                    assert value.sbp == (S0 if large else B,) and value.to_local().numel() == p.numel() // (
                        2 if large else 1
                    ), (name, p.shape, value.sbp)
                    split += large
        assert split >= 2
    return graph


class Stages(nn.Module):
    """Two layers on one rank each, as OneFlow's pipelines are written."""

    def __init__(self):
        super().__init__()
        flow.manual_seed(0)
        self.places = [flow.placement("cpu", [r]) for r in range(2)]
        self.first, self.second = (
            nn.Linear(6, 8).to_global(self.places[0], B),
            nn.Linear(8, 4).to_global(self.places[1], B),
        )

    def forward(self, x):
        hidden = flow.relu(self.first(x.to_global(placement=self.places[0], sbp=B)))
        return self.second(hidden.to_global(placement=self.places[1], sbp=B))


def a_pipeline_equals_one_rank(names=("adamw", "sgd")):
    for name in names:
        flow.manual_seed(0)
        layers = nn.Linear(6, 8), nn.Linear(8, 4)
        alone = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        expected = trained(alone, OPTIMIZERS[name](alone.parameters()), lambda t: t, clip=1e9)
        model = Stages()
        optimizer = OPTIMIZERS[name](model.parameters())
        target = lambda y: y.to_global(ALL, B).to_global(placement=model.places[1], sbp=B)
        losses = []
        for x, y in batches():
            loss = nn.functional.cross_entropy(model(x.to_global(ALL, B)), target(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert np.allclose(losses, expected, rtol=1e-4)
        graph_model = Stages()
        graph = Step(graph_model, OPTIMIZERS[name](graph_model.parameters()))
        got = [graph(x.to_global(ALL, B), target(y)).item() for x, y in batches()]
        assert np.allclose(got, losses, rtol=1e-4), (got, losses)
        for p, q in zip(graph_model.parameters(), model.parameters()):
            assert p.placement == q.placement and np.allclose(p.numpy(), q.numpy(), atol=1e-4)


def a_gradient_overflows_on_one_stage():
    """No stage steps, and the scale shrinks on all ranks, eager and in a graph; then all step as without a
    scale.
    """

    class Scaled(Step):
        def __init__(self, model, optimizer, scaler):
            super().__init__(model, optimizer)
            self.set_grad_scaler(scaler)

    (x, y), *_ = batches()
    for in_graph in (False, True):
        model = Stages()
        with flow.no_grad():
            model.second.weight.mul_(1e-20)  # the gradients of the first stage are small
        before = [p.numpy().copy() for p in model.parameters()]
        optimizer, scaler = (
            OPTIMIZERS["sgd"](model.parameters()),
            flow.amp.GradScaler(init_scale=3e38, backoff_factor=1e-30),
        )
        x, y = (t if t.is_global else t.to_global(ALL, B) for t in (x * 10, y))
        y = y.to_global(placement=model.places[1], sbp=B)
        graph = Scaled(model, optimizer, scaler) if in_graph else None
        for moves in (False, True):
            if in_graph:
                graph(x, y)
            else:
                optimizer.zero_grad()
                scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
                scaler.step(optimizer)
                scaler.update()
            assert np.isclose(scaler.get_scale(), 3e8), scaler.get_scale()
            changed = [not np.array_equal(p.numpy(), old) for p, old in zip(model.parameters(), before)]
            assert all(changed[2:]) if moves else not any(changed), (in_graph, changed)


def a_convolution_on_one_stage():
    """The ranks outside of a placement wait in no call that the ranks in it do not make."""
    first, last = flow.placement("cpu", [0]), flow.placement("cpu", [1])

    class Net(nn.Module):
        def __init__(self, places):
            super().__init__()
            flow.manual_seed(0)
            self.places, self.conv, self.last = (
                places,
                nn.Conv2d(3, 4, 3).to_global(places[0], B),
                nn.Linear(4, 2).to_global(places[1], B),
            )

        def forward(self, x):
            return (
                self.last(self.conv(x).mean((2, 3)).to_global(placement=self.places[1], sbp=B)).pow(2).sum()
            )

    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    image = flow.arange(2 * 3 * 25).reshape(2, 3, 5, 5) / 100
    weights = []
    for places in ((ALL, ALL), (first, last)):
        model = Net(places)
        step, x = Step(model), image.to_global(ALL, B).to_global(placement=places[0], sbp=B)
        step(x), step(x)
        loss = model(x)
        loss.backward()
        weights.append([loss.numpy(), model.conv.weight.numpy(), model.conv.weight.grad.numpy()])
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(*weights))


def rules_on_one_stage():
    """A rank that holds no part finds the rules that the others find, and takes the results that an operator
    leaves out.
    """
    flow.manual_seed(0)
    first, x = flow.placement("cpu", [0]), flow.randn(4, 6)
    for rule, bias_rule in ((S0, S0), (S0, B), (S1, B), (B, S0)):
        layer, norm = nn.Linear(6, 6), nn.LayerNorm(6)
        norm.weight.requires_grad_(False), norm.bias.requires_grad_(False)
        results = []
        for placed in (False, True):
            data = x.to_global(ALL, B).to_global(placement=first, sbp=B) if placed else x
            weight, bias = (
                p.detach().to_global(ALL, B).to_global(placement=first, sbp=r) if placed else p
                for p, r in ((layer.weight, rule), (layer.bias, bias_rule))
            )
            weight.requires_grad_(), bias.requires_grad_()
            weight.grad = bias.grad = None
            groups = nn.functional.group_norm(data.to_global(sbp=S0) if placed else data, 2)
            h = nn.functional.linear(data, weight, bias) + groups
            if placed:
                told = [None] * WORLD
                flow.distributed.all_gather_object(told, str(h.sbp))
                assert len(set(told)) == 1, (rule, bias_rule, told)
            a, b, c = flow.nn.functional.layer_norm(h, (6,)).view(4, 3, 2).permute(1, 0, 2).unbind(0)
            h = norm.to_global(first, B)(h) if placed else norm(h)
            (flow.cat([a * b, c], 1).sum(1, keepdim=True) * h.square()).sum().backward()
            results.append([t.numpy() for t in (h.detach(), weight.grad, bias.grad)])
        assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(*results)), (rule, bias_rule)


def positions_on_one_stage():
    values = np.random.RandomState(0).randn(2, 3, 4).astype(np.float32)
    for stage in (flow.placement("cpu", [0]), flow.placement("cpu", [1])):
        x = flow.tensor(values).to_global(ALL, B).to_global(placement=stage, sbp=B)
        for find in (
            lambda t: t.argmax(-1),
            lambda t: t.argmin(1, keepdim=True),
            lambda t: t.argmax(),
            lambda t: t.max(-1)[1],
            lambda t: flow.argmin(t, 0),
        ):
            is_(find(x), find(flow.tensor(values)).numpy(), B)


def norms_of_narrow_data_on_one_stage():
    """As autocast makes them: bfloat16 data and float32 weights."""
    first, F = flow.placement("cpu", [0]), nn.functional
    flow.manual_seed(0)
    values = flow.randn(4, 4, 6)

    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.groups, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm(6)

        def forward(self, x):
            x = (x * 1).bfloat16()
            return (F.relu(self.groups(x)).float() + F.relu(self.layer(x)).float()).square().mean()

    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

        def build(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    results = []
    for placed in (False, True):
        eager, captured, x = Norms(), Norms(), values.clone()
        if placed:
            eager.to_global(first, B), captured.to_global(first, B)
            x = x.to_global(ALL, B).to_global(placement=first, sbp=S0)
        x.requires_grad_()
        loss, step = eager(x), Step(captured)
        loss.backward()
        results.append(
            [
                t.detach().numpy()
                for t in (
                    loss,
                    x.grad,
                    eager.groups.weight.grad,
                    eager.layer.bias.grad,
                    step(x.detach()),
                    step(x.detach()),
                    *captured.parameters(),
                )
            ]
        )
    assert all(np.allclose(a, b, atol=0.02) for a, b in zip(*results)), results


def dtypes_on_one_stage():
    """If a kernel refuses a call, every rank refuses it, so that all ranks continue with the same calls."""
    first = flow.placement("cpu", [0])

    def results(mask, x, i):
        return (
            1 - mask,
            1.0 - mask,
            mask - mask,
            mask - x,
            x - mask,
            mask - 1,
            mask.sub(1),
            flow.sub(1, mask),
            mask + mask,
            mask * x,
            i // 2,
        )

    def written(mask, x, i):
        return i.clone().sub_(x), i.clone().mul_(x), i.clone().sub_(mask), x.clone().sub_(mask)

    class Step(nn.Graph):
        def build(self, *args):
            return results(*args)

    query = (
        flow.ones(2, 2, 4, 3, dtype=flow.bfloat16)
        .to_global(ALL, B)
        .to_global(placement=first, sbp=B)
        .requires_grad_()
    )
    scores = flow._scaled_dot_product_flash_attention_for_cpu(query, query, query)
    assert [t.dtype for t in scores] == [flow.bfloat16, flow.float32]
    nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert query.grad.dtype == flow.bfloat16 and np.isclose(query.grad.float().numpy().sum(), 48)
    local = flow.tensor([True, False, True]), flow.tensor([1.5, 2.0, 3.0]), flow.tensor([5, 6, 7])
    staged = [t.to_global(ALL, B).to_global(placement=first, sbp=B) for t in local]
    expected = results(*local), results(*local), written(*local)
    for got, reference in zip((results(*staged), Step()(*staged), written(*staged)), expected):
        for i, (g, w) in enumerate(zip(got, reference)):
            assert g.dtype == w.dtype and g.numpy().tolist() == w.tolist(), (i, g, w)
