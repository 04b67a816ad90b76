"""Regression tests from programs of other packages, reduced to plain torch."""

import copy

import pytest
import torch
import torch.utils._pytree as pytree
from graph_cases import graph_of
from torch import nn

from oneflow._graph.capture.capture import Capture


def steps(build_of, make, xs, in_graph, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)):
    """Outputs and state after a few training steps; `build_of(module)` is a function of one tensor that calls backward()."""
    torch.manual_seed(0)
    module = make()
    optimizer_of_module = optimizer(list(module.parameters()))
    build = build_of(module)
    run = graph_of(build, optimizer_of_module, module=module) if in_graph else build
    torch.manual_seed(1)
    outs = []
    for x in xs:
        if not in_graph:
            optimizer_of_module.zero_grad()
        outs.append(run(x).detach().clone())
        if not in_graph:
            optimizer_of_module.step()
    return outs, {k: v.clone() for k, v in module.state_dict().items()}, module


def same_as_eager(build_of, make, xs, **kwargs):
    (outs_e, state_e, _), (outs_g, state_g, module) = (
        steps(build_of, make, xs, in_graph, **kwargs) for in_graph in (False, True)
    )
    assert all(map(torch.equal, outs_e, outs_g))
    assert state_e.keys() == state_g.keys() and all(torch.equal(state_e[k], state_g[k]) for k in state_e)
    return module


def inputs(*shape, count=3):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def test_gradients_through_activations_of_transposed_tensors_can_be_reshaped():
    """The gate of state-space attention: softplus of a projection, used as (batch, heads, time)."""

    def build_of(m):
        def build(x):
            gate = nn.functional.softplus(m(x)).transpose(1, 2)
            loss = (gate.cumsum(-1).exp() * 0.01).square().sum()
            loss.backward()
            return loss

        return build

    same_as_eager(build_of, lambda: nn.Linear(4, 2), inputs(2, 5, 4))


@pytest.mark.parametrize(
    "optimizer",
    [lambda p: torch.optim.Adam(p), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)],
    ids=["Adam", "SGD"],
)
def test_batches_of_two_lengths_share_two_programs(optimizer, monkeypatch):
    """Capturing the second length left the first one's program without the optimizer's state: every call captured again."""
    captures, run = [], Capture.run
    monkeypatch.setattr(Capture, "run", lambda self: captures.append(1) or run(self))

    same_as_eager(
        one_loss, lambda: nn.Linear(4, 2), [torch.ones(n, 4) for n in (3, 5) * 4], optimizer=optimizer
    )
    assert len(captures) == 2


def one_loss(m):
    def build(x):
        loss = m(x).square().mean()
        loss.backward()
        return loss

    return build


def test_tables_by_dtype():
    """A cache of position tables, one for each dtype: its keys are read by generated code."""

    class Positions(nn.Linear):
        def forward(self, x):
            if x.dtype not in self.tables:
                self.tables[x.dtype] = torch.arange(2, dtype=x.dtype)
            return super().forward(x) + self.tables[x.dtype] * self.scales[torch.float32, 0]

    def make():
        module = Positions(4, 2)
        module.tables, module.scales = {torch.float64: torch.ones(2)}, {(torch.float32, 0): 0.5}
        return module

    same_as_eager(one_loss, make, inputs(3, 4))


def test_a_deep_copy_is_of_each_calls_values():
    """A learner's inner loop on a copy of the model: the copy was of the first call's weights for ever."""

    def build_of(m):
        def build(x):
            inner = copy.deepcopy(m)
            grads = torch.autograd.grad(inner(x).square().mean(), list(inner.parameters()))
            with torch.no_grad():
                for p, g in zip(inner.parameters(), grads):
                    p -= 0.1 * g
            loss = (
                sum((a - b.detach()).square().sum() for a, b in zip(m.parameters(), inner.parameters()))
                + m(x).mean()
            )
            loss.backward()
            return loss

        return build

    same_as_eager(
        build_of, lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)), inputs(5, 4)
    )


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_messages_along_the_edges_of_a_directed_graph(layout):
    """The transpose of a square sparse matrix has no strides to differ by, and was taken for the matrix itself."""
    edges = torch.tensor([[0.0, 1, 0], [0, 0, 2], [0, 1, 0]]).to_sparse(layout=layout)

    def build_of(m):
        def build(x):
            loss = torch.sparse.mm(edges, m(x)).square().mean()
            loss.backward()
            return loss

        return build

    same_as_eager(build_of, lambda: nn.Linear(4, 2), inputs(3, 4))


def test_a_table_kept_in_the_state_dict():
    """Positions made at the first call, in a buffer that a checkpoint holds."""

    class Table(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.register_buffer("positions", torch.zeros(1))

        def forward(self, x):
            if len(self.positions) != len(x):
                self.positions = torch.arange(len(x), dtype=x.dtype)
            return super().forward(x) + self.positions[:, None]

    same_as_eager(one_loss, Table, inputs(3, 4))


class Keeps(nn.Linear):
    """Keeps its input, and its result under two names that are read before they are bound, as torchmetrics does."""

    def __init__(self):
        super().__init__(4, 2)
        self.previous = self.result = self.largest = None

    def forward(self, x):
        change = x if self.previous is None else x - self.previous
        out = super().forward(change)
        total = out.detach().sum()
        if self.result is not None:
            out = out + self.result - 2 * self.largest
        self.previous, self.result, self.largest = (
            x,
            total,
            total if self.largest is None else torch.maximum(total, self.largest),
        )
        return out, total


def test_attributes_of_a_module_are_copies():
    """The second program wrote into the first call's argument and result, and into one tensor for two attributes."""

    def run(in_graph):
        torch.manual_seed(0)
        module, xs = Keeps(), inputs(3, 4, count=4)
        copies = [x.clone() for x in xs]
        step = graph_of(module, module=module) if in_graph else module
        outs = [t for x in xs for t in step(x)]
        assert all(map(torch.equal, xs, copies))
        return outs, [module.previous, module.result, module.largest]

    assert all(torch.equal(a, b) for e, g in zip(run(False), run(True)) for a, b in zip(e, g))


def test_two_attributes_on_one_tensor_are_bound_apart():
    class Two(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.a = self.b = torch.zeros(3)

        def forward(self, x):
            out = super().forward(x).sum(1) + self.a - self.b
            self.a, self.b = x[:, 0] * 2, x[:, 1] * 3
            return out

    same_as_eager(one_loss, Two, inputs(3, 4))


@pytest.mark.parametrize("anew", [
    lambda m, y: m.weight.detach() * 2,
    lambda m, y: y.detach()[:1].expand(4, 4) * 2,
    lambda m, y: m.weight.detach(),
    lambda m, y: m.weight.detach().t().t(),
    lambda m, y: m.weight.data.t(),
    lambda m, y: m.other[0],
], ids=["computed of it", "another", "the same", "a view of the same", "another view", "a real one"])  # fmt: skip
def test_an_attribute_in_the_memory_of_a_parameter_is_rebound(anew):
    """The tensor that build() bound to the name was dropped: writing it there would have written the
    parameter.
    """

    class Views(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.kept, self.other = self.weight.detach(), [torch.ones(4, 4)]

        def forward(self, x):
            out = super().forward(x) + self.kept.sum(0) * torch.arange(4)
            self.kept = anew(self, out)
            return out

    assert not same_as_eager(one_loss, Views, inputs(3, 4, count=4)).kept.requires_grad


class Late(nn.Linear):
    """A module that is created on first use, like the estimators of loss modules in reinforcement
    learning.
    """

    def __init__(self):
        super().__init__(4, 2)
        self.part = None

    def forward(self, x):
        if self.part is None:
            part = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
            part.register_buffer("factor", torch.tensor(0.5))
            part.noise = torch.rand(2)
            self.part = part
        out = super().forward(x)
        if out.shape[0] == 1:
            raise ValueError("one row")
        return out + self.part(out) * self.part.factor + self.part.noise


def test_a_module_created_in_the_first_call_persists():
    graphed = same_as_eager(one_loss, Late, inputs(3, 4))
    assert type(graphed.part[0].weight) is nn.Parameter and graphed.part[0].bias.requires_grad
    assert torch.isfinite(graphed.eval()(inputs(3, 4)[0])).all()


def test_a_module_created_in_a_failed_call_is_removed():
    module = Late()
    graph = graph_of(one_loss(module), torch.optim.SGD(module.parameters(), lr=0.1), module=module)
    with pytest.raises(ValueError, match="one row"):
        graph(inputs(1, 4)[0])
    assert module.part is None and not list(module.children())
    assert torch.isfinite(graph(inputs(3, 4)[0]))


def test_a_dict_rebound_in_every_call(monkeypatch):
    """A cache of the last results, created again in each forward pass: each new dict once caused another
    program.
    """
    captures, run = [], Capture.run
    monkeypatch.setattr(Capture, "run", lambda self: captures.append(1) or run(self))

    class Caching(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            if "last" in self.cache:
                out = out + 0.1 * self.cache["last"].mean()
            self.cache = {**self.cache, "last": out.detach()}
            return out

    def make():
        module = Caching(4, 2)
        module.cache = {}
        return module

    same_as_eager(one_loss, make, inputs(3, 4, count=5))
    assert len(captures) == 2


class Record:
    """Tensors by name in a class of a package's own, known to torch's pytree, as TensorDict is."""

    def __init__(self, **held):
        self.held = held


pytree.register_pytree_node(
    Record,
    lambda r: (list(r.held.values()), list(r.held)),
    lambda values, names: Record(**dict(zip(names, values))),
)


@pytest.mark.parametrize("in_a_dict", [False, True])
def test_a_class_that_pytree_knows_is_kept(in_a_dict):
    """A cache of torchrl's losses: the second capture met tensors of the first one."""

    class Caching(nn.Linear):
        def forward(self, x):
            last = self.cache.get("last") if in_a_dict else self.last
            out = super().forward(x)
            if last is not None:
                out = out + 0.1 * last.held["mean"]
            record = Record(out=out.detach(), mean=out.detach().mean())
            if in_a_dict:
                self.cache["last"] = record
            else:
                self.last = record
            return out

    def make():
        module = Caching(4, 2)
        module.cache, module.last = {}, None
        return module

    module = same_as_eager(one_loss, make, inputs(3, 4, count=5))
    kept = module.cache["last"] if in_a_dict else module.last
    assert type(kept) is Record and type(kept.held["out"]) is torch.Tensor


def test_deeply_nested_settings_of_a_module():
    """A model's layers as lists in lists, as they were read from a file."""

    def make():
        module = nn.Linear(4, 2)
        module.settings = {"head": [[[[[1, 2], "Conv"]]]]}
        return module

    assert same_as_eager(one_loss, make, inputs(3, 4)).settings == {"head": [[[[[1, 2], "Conv"]]]]}


def keeping_deep(count):
    """Makes layers that keep results in a dict `count` deep, which also holds itself."""

    class Caching(nn.Linear):
        def forward(self, x):
            out, kept = super().forward(x), self.cache
            for _ in range(count):
                kept = kept["in"]
            if "last" in kept:
                out = out + 0.1 * kept["last"].mean()
            kept["last"] = out.detach()
            return out

    def make():
        module, kept = Caching(4, 2), {}
        for _ in range(count):
            kept = {"in": kept}
        kept["whole"] = module.cache = kept
        return module

    return make


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_tensors_kept_deep_in_a_dict_that_holds_itself(count):
    same_as_eager(one_loss, keeping_deep(count), inputs(3, 4, count=5))


def test_tensors_kept_too_deep_are_refused():
    """No later call would see that they are there: eager mode would go on with them."""
    module = keeping_deep(5)()
    graph = graph_of(one_loss(module), torch.optim.SGD(module.parameters(), lr=0.1), module=module)
    with pytest.raises(RuntimeError, match="more than 4 deep"):
        graph(inputs(3, 4)[0])
    assert module.cache["in"]["in"]["in"]["in"]["in"] == {}


class Criterion:
    """A loss of a package's own, as detectors make theirs in the first call: tables, a layer, numbers, the module it belongs to."""

    def __init__(self, of, keep):
        self.of, self.table, self.parts, self.calls = of, torch.arange(2.0) + 1, {"norm": nn.LayerNorm(2)}, 0
        if keep:
            self.start = of.weight.detach().mean() * 2 + torch.rand(())

    def __call__(self, out):
        self.calls += 1
        return (self.parts["norm"](out) * self.table).square().mean() + getattr(self, "start", 0)


@pytest.mark.parametrize("keep", [False, True])
def test_an_object_created_in_the_first_call_persists(keep):
    class Detector(nn.Linear):
        criterion = None

        def forward(self, x):
            if self.criterion is None:
                self.criterion = Criterion(self, keep)
            if x.shape[0] == 1:
                raise ValueError("one row")
            out = super().forward(x)
            if (
                out.detach() > 0
            ).sum() > 1000:  # taken for likely, so that the first program is not the right one
                out = out * 2
            return self.criterion(out)

    graphed = same_as_eager(one_loss, lambda: Detector(4, 2), inputs(3, 4, count=4))
    assert torch.equal(graphed.criterion.table, torch.tensor([1.0, 2.0]))
    assert torch.isfinite(graphed(inputs(3, 4)[0]))

    module = Detector(4, 2)
    graph = graph_of(one_loss(module), torch.optim.SGD(module.parameters(), lr=0.1), module=module)
    with pytest.raises(ValueError, match="one row"):
        graph(inputs(1, 4)[0])
    assert module.criterion is None
