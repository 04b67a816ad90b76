"""Features of build(): several losses, hooks, closures, structures, shared weights, several optimizers,
errors.
"""

import copy

import pytest
import torch
from graph_cases import make
from torch import nn

import oneflow as flow
from oneflow.nn.graph.proxy import ProxyModule


def test_inference_and_new_shapes_share_weights():
    model = nn.Linear(3, 2)
    graph = make(lambda self, x: self.m(x), {"m": model})
    for n in (1, 4, 1, 7):
        x = torch.randn(n, 3)
        assert torch.equal(graph(x), model(x))
    assert len(graph._engine.programs) == 3
    with torch.no_grad():
        model.weight.zero_()
    x = torch.randn(4, 3)
    assert torch.equal(graph(x), model(x))
    assert not graph(x).requires_grad


def test_cache_is_bounded():
    graph = make(lambda self, x: x + 1, cache_size=2)
    for n in range(1, 6):
        assert torch.equal(graph(torch.zeros(n)), torch.ones(n))
    assert len(graph._engine.programs) == 2


def test_structures_in_and_out():
    def build(self, x, pair, *, options, flag=None):
        a, b = pair
        return {"sum": x + a, "list": [b * options["k"], None, (flag, 2.5)], "text": "t"}

    graph = make(build)
    x, a, b = torch.randn(2), torch.randn(2), torch.randn(2)
    out = graph(x, (a, b), options={"k": 3}, flag=True)
    assert torch.equal(out["sum"], x + a) and torch.equal(out["list"][0], b * 3)
    assert out["list"][1:] == [None, (True, 2.5)] and out["text"] == "t"
    assert torch.equal(graph(x, [a, b], options={"k": 4})["list"][0], b * 4)


def test_closure_tensor_is_live():
    free = torch.ones(2)
    graph = make(lambda self, x: x + free)
    assert torch.equal(graph(torch.zeros(2)), torch.ones(2))
    free.add_(1)
    assert torch.equal(graph(torch.zeros(2)), torch.full((2,), 2.0))


def test_constants_of_python_data_are_not_written_across_calls():
    def build(self, x):
        c = torch.tensor([1.0, 2.0])
        c.add_(x)
        return c

    graph = make(build)
    for _ in range(3):
        assert torch.equal(graph(torch.ones(2)), torch.tensor([2.0, 3.0]))


def test_constant_item_is_python_data():
    graph = make(lambda self, x: x * torch.tensor(3.0).item())
    assert torch.equal(graph(torch.ones(2)), torch.full((2,), 3.0))


def test_two_losses_autograd_grad_hooks_and_no_grad():
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    other = copy.deepcopy(model)
    seen = []

    def step(m, x):
        h = m(x)
        h.register_hook(lambda g: g * 2)
        (gx,) = torch.autograd.grad(h.pow(2).sum(), m.weight, retain_graph=True)
        with torch.no_grad():
            scale = h.abs().mean()
        h.sum().backward(retain_graph=True)
        (h * scale).mean().backward()
        return h, gx

    model.weight.register_hook(lambda g: g + 1)
    other.weight.register_hook(lambda g: seen.append(1) or g + 1)
    opt, opt2 = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, other))
    graph = make(lambda self, x: step(self.m, x), {"m": other}, [opt2])
    for _ in range(4):
        x = torch.randn(2, 3)
        opt.zero_grad()
        h, gx = step(model, x)
        opt.step()
        h2, gx2 = graph(x)
        assert torch.equal(h, h2) and torch.equal(gx, gx2) and torch.equal(model.weight, other.weight)
    assert len(seen) == 3, "hooks run only while the graph is captured"


def test_shared_and_frozen_parameters():
    torch.manual_seed(0)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.emb.weight
            self.frozen = nn.Linear(4, 4).requires_grad_(False)

        def forward(self, i):
            return self.head(self.frozen(self.emb(i)))

    a = Tied()
    b = copy.deepcopy(a)
    oa, ob = (torch.optim.Adam([p for p in m.parameters() if p.requires_grad], lr=0.1) for m in (a, b))

    def loss(m, i):
        value = nn.functional.cross_entropy(m(i), i)
        value.backward()
        return value

    graph = make(lambda self, i: loss(self.m, i), {"m": b}, [ob])
    i = torch.tensor([0, 1, 4])
    for _ in range(5):
        oa.zero_grad()
        la = loss(a, i)
        oa.step()
        assert torch.equal(la, graph(i))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))


def test_eager_and_graph_steps_mix():
    torch.manual_seed(0)
    a = nn.Linear(3, 1)
    b = copy.deepcopy(a)
    oa, ob = (torch.optim.Adam(m.parameters(), lr=0.1) for m in (a, b))

    def eager(m, o, x):
        o.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward()
        o.step()
        return loss

    def build(self, x):
        loss = self.m(x).pow(2).mean()
        loss.backward()
        return loss

    graph = make(build, {"m": b}, [ob])
    for k in range(8):
        x = torch.randn(4, 3)
        expected = eager(a, oa, x)
        got = graph(x) if k % 3 else eager(b, ob, x)
        assert torch.equal(expected, got)
        if k == 4:
            ob.load_state_dict(copy.deepcopy(ob.state_dict()))
    assert torch.equal(a.weight, b.weight)


def test_gradients_are_left_alone():
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    before = model.weight.grad.clone()
    held = model.weight.grad

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    graph = make(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])
    graph(torch.ones(3, 2))
    graph(torch.ones(3, 2))
    assert model.weight.grad is held and torch.equal(held, before)


def test_two_optimizers_gan():
    torch.manual_seed(0)
    nets = [nn.Linear(2, 3), nn.Linear(3, 1)]
    twins = copy.deepcopy(nets)

    def losses(g, d, z, real):
        fake = g(z)
        d_loss = d(fake.detach()).mean() - d(real).mean()
        g_loss = -(d(fake) * 2).mean()
        return d_loss, g_loss

    def eager_step(g, d, og, od, z, real):
        og.zero_grad(), od.zero_grad()
        d_loss, g_loss = losses(g, d, z, real)
        grads = torch.autograd.grad(g_loss, list(g.parameters()), retain_graph=True)
        d_loss.backward()
        for p, grad in zip(g.parameters(), grads):
            p.grad = grad
        og.step(), od.step()
        return d_loss, g_loss

    def build(self, z, real):
        d_loss, g_loss = losses(self.g, self.d, z, real)
        grads = torch.autograd.grad(g_loss, list(self.g.parameters()), retain_graph=True)
        d_loss.backward()
        for p, grad in zip(self.g.parameters(), grads):
            p.grad = grad
        return d_loss, g_loss

    opts = [torch.optim.Adam(nets[0].parameters(), lr=0.1), torch.optim.SGD(nets[1].parameters(), lr=0.1)]
    twin_opts = [
        torch.optim.Adam(twins[0].parameters(), lr=0.1),
        torch.optim.SGD(twins[1].parameters(), lr=0.1),
    ]
    graph = make(build, {"g": twins[0], "d": twins[1]}, twin_opts)
    for _ in range(6):
        z, real = torch.randn(4, 2), torch.randn(4, 3)
        for e, r in zip(eager_step(*nets, *opts, z, real), graph(z, real)):
            assert torch.equal(e, r)
    for net, twin in zip(nets, twins):
        assert all(torch.equal(p, q) for p, q in zip(net.parameters(), twin.parameters()))


def test_group_clipping_as_oneflow_does():
    # recorded from OneFlow 0.9.0: weights 1, lr 0.1, gradient (12, 16) clipped to norm 1 gives (0.94, 0.92)
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    group = {"params": model.parameters(), "lr": 0.1, "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    graph = make(build, {"m": model}, [flow.optim.SGD([group])])
    assert graph(torch.arange(8.0).reshape(4, 2)).item() == 28.0
    assert torch.allclose(model.weight, torch.tensor([[0.94, 0.92]]), atol=1e-6)


@pytest.mark.parametrize(
    "reduction, weight, losses", [("sum", [0.4, 0.2], [6.0, 22.0]), ("mean", [0.7, 0.6], [3.0, 11.0])]
)
def test_gradient_accumulation_as_oneflow_does(reduction, weight, losses):
    # recorded from OneFlow 0.9.0: gradients are averaged over the micro batches, 0-d outputs stacked, others concatenated
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)

    def build(self, x):
        y = self.m(x)
        loss = getattr(y, reduction)()
        loss.backward()
        return loss, y

    graph = make(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])
    graph.config.set_gradient_accumulation_steps(2)
    loss, y = graph(torch.arange(8.0).reshape(4, 2))
    assert loss.tolist() == losses and y.shape == (4, 1)
    assert torch.allclose(model.weight, torch.tensor([weight]), atol=1e-6)
    with pytest.raises(flow._errors.OneFlowError, match="micro batches"):
        graph(torch.ones(3, 2))


def test_rebound_buffer_and_attribute_are_written_back():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.hidden = torch.zeros(2)
            self.cache = None

        def forward(self, x):
            self.count = self.count + 1
            self.hidden = torch.tanh(self.hidden + x)
            if self.cache is None:
                self.cache = torch.arange(2.0)
            return self.hidden + self.count + self.cache

    a, b = Counter(), Counter()
    graph = make(lambda self, x: self.m(x), {"m": b})
    for _ in range(3):
        x = torch.randn(2)
        assert torch.equal(a(x), graph(x))
    assert torch.equal(a.count, b.count) and torch.equal(a.hidden, b.hidden) and b.cache is None


def test_train_and_eval_before_the_first_call_decide():
    model = nn.Dropout(0.5)
    model.eval()
    graph = make(lambda self, x: self.m(x), {"m": model})
    x = torch.ones(100)
    assert torch.equal(graph(x), x)
    model.train()
    assert torch.equal(graph(x), x)
    y = torch.ones(50)
    assert torch.equal(graph(y), y) and model.training, (
        "a program for a new shape is captured in the same mode"
    )


def test_randomness_is_that_of_eager():
    def draw(x):
        return torch.rand(3) + torch.randn(3) * x + torch.bernoulli(torch.full((3,), 0.5)) + torch.randperm(3)

    graph = make(lambda self, x: draw(x))
    torch.manual_seed(3)
    expected = [draw(torch.ones(3)) for _ in range(3)]
    torch.manual_seed(3)
    assert all(torch.equal(e, graph(torch.ones(3))) for e in expected)


def test_compile_runs_nothing():
    model = nn.Linear(2, 1)
    before = copy.deepcopy(model.state_dict())

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    graph = make(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])
    program = graph._engine.compile(torch.ones(1, 2))
    assert "def G_" in str(program)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_parameter_outside_every_module_and_input_gradient():
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(3))
    v = nn.Parameter(w.detach().clone())

    def build(self, x):
        loss = (x * w).pow(2).sum()
        (gx,) = torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()
        return loss, gx

    opts = [torch.optim.SGD([p], lr=0.1, momentum=0.5) for p in (w, v)]
    graph = make(build, (), opts[:1])
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        opts[1].zero_grad()
        loss = (x * v).pow(2).sum()
        loss.backward()
        opts[1].step()
        got, gx = graph(x.detach().requires_grad_())
        assert torch.equal(got, loss) and torch.equal(gx, x.grad) and torch.equal(v, w)


def test_buffers_of_a_module_are_written_only_by_running():
    model = nn.BatchNorm1d(2)
    other = copy.deepcopy(model)
    graph = make(lambda self, x: self.m(x), {"m": model})
    for _ in range(3):
        x = torch.randn(4, 2)
        assert torch.equal(other(x), graph(x))
    assert torch.equal(model.running_var, other.running_var) and model.num_batches_tracked == 3


def test_autograd_sees_that_a_program_wrote_a_parameter():
    model = nn.Linear(2, 1)
    x = torch.ones(1, 2, requires_grad=True)
    pending = (model(x) * 2).sum()

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    make(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])(torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        pending.backward()


def test_state_that_was_loaded_cleared_or_extended():
    torch.manual_seed(0)
    a, extra = nn.Linear(2, 2), nn.Linear(2, 1)
    b, extra_b = copy.deepcopy(a), copy.deepcopy(extra)
    oa, ob = (torch.optim.Adam(m.parameters(), lr=0.1) for m in (a, b))

    def build(self, x):
        loss = self.e(self.m(x)).pow(2).mean()
        loss.backward()
        return loss

    graph = make(build, {"m": b, "e": extra_b}, [ob])
    saved = None
    for k in range(8):
        x = torch.randn(3, 2)
        oa.zero_grad(), extra.zero_grad()
        loss = extra(a(x)).pow(2).mean()
        loss.backward()
        oa.step()
        assert torch.equal(loss, graph(x)), k
        if k == 1:
            saved = copy.deepcopy(oa.state_dict())
        for optimizer, more in ((oa, extra), (ob, extra_b)):
            if k == 2:
                optimizer.state.clear()
            if k == 4:
                optimizer.load_state_dict(copy.deepcopy(saved))
            if k == 5:
                optimizer.add_param_group({"params": list(more.parameters()), "lr": 0.01})
    assert torch.equal(extra.weight, extra_b.weight) and torch.equal(a.weight, b.weight)


class Probe:
    """As libraries that explain or attack models do: asks whether it has a module, hooks a layer, looks the layer up, wraps it."""

    def __init__(self, model, layer):
        assert isinstance(model, nn.Module) and isinstance(layer, nn.Linear)
        self.model, self.layer, self.seen = nn.Sequential(model), layer, {}

    def __call__(self, x):
        handle = self.layer.register_forward_hook(
            lambda module, args, out: self.seen.__setitem__(module, out)
        )
        out = self.model(x)
        handle.remove()
        return out.sum() + self.seen[self.layer].square().sum()


def test_libraries_take_a_block_for_its_module():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    want = Probe(model, model[0])(x)

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            assert (
                self.model[0] == model[0]
                and self.model[0] != self.model[2]
                and {self.model[2]: 1}[model[2]] == 1
            )
            return Probe(self.model, self.model[0])(x)

    graph = Graph()
    assert torch.equal(graph(x), want)
    assert type(graph.model) is graph.model.__class__ is ProxyModule and not isinstance(
        graph.model, nn.Module
    )
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_gradients_of_each_sample_through_functional_call():
    """As the page on per-sample gradients writes it, with the graph's own attribute for the model."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))

    def gradients(module, x, y):
        weights = {name: p.detach() for name, p in module.named_parameters()}

        def loss(weights, x, y):
            return nn.functional.cross_entropy(
                torch.func.functional_call(module, weights, (x.unsqueeze(0),)), y.unsqueeze(0)
            )

        return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, x, y)

    class Each(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_backend("aten")

        def build(self, x, y):
            return gradients(self.model, x, y)

    x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
    found, wanted = Each()(x, y), gradients(model, x, y)
    assert list(found) == list(wanted) and all(torch.equal(found[k], wanted[k]) for k in wanted)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.svdvals,
        torch.linalg.cond,
        lambda x: torch.linalg.eigvalsh(x @ x.mT),
        lambda x: torch.linalg.matrix_norm(x, "nuc"),
        lambda x: torch.linalg.norm(x, 2),
        lambda x: x.norm("nuc"),
        torch.linalg.matrix_rank,
        lambda x: (torch.linalg.svdvals(x), torch.linalg.svd(x).S),
    ],
)
def test_values_without_vectors(function, trained):
    """For values alone LAPACK uses another algorithm, which torch selects if no gradient needs the
    vectors.
    """
    torch.manual_seed(0)
    x = torch.randn(7, 7, requires_grad=trained)
    graph = flow.nn.Graph.trace(lambda x: function(x))
    graph.config.set_backend("aten")
    found, wanted = graph(x), function(x)
    assert all(
        torch.equal(a, b) for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)))
    )
