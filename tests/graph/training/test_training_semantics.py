"""Training steps in build(): several losses, optimizers, clipping, accumulation, shared parameters."""

import copy

import pytest
import torch
from graph_cases import graph_with
from torch import nn

import oneflow as flow


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
    graph = graph_with(lambda self, x: step(self.m, x), {"m": other}, [opt2])
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

    graph = graph_with(lambda self, i: loss(self.m, i), {"m": b}, [ob])
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

    graph = graph_with(build, {"m": b}, [ob])
    for k in range(8):
        x = torch.randn(4, 3)
        expected = eager(a, oa, x)
        got = graph(x) if k % 3 else eager(b, ob, x)
        assert torch.equal(expected, got)
        if k == 4:
            ob.load_state_dict(copy.deepcopy(ob.state_dict()))
    assert torch.equal(a.weight, b.weight)


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.always, self.at_times, self.never = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.uses_both = False

    def forward(self, x):
        return self.at_times(self.always(x)) if self.uses_both else self.always(x)


OPTIMIZERS_THAT_DECAY = {
    "AdamW": lambda p: flow.optim.AdamW(p, lr=0.1, weight_decay=0.5),
    "SGD": lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adagrad": lambda p: flow.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
    "RMSprop": lambda p: flow.optim.RMSprop(p, lr=0.01, weight_decay=0.1),
    "Adadelta": lambda p: flow.optim.Adadelta(p, weight_decay=0.1),
    "LAMB": lambda p: flow.optim.LAMB(p, lr=0.1, weight_decay=0.1),
    "AdamW of torch": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS_THAT_DECAY)
def test_a_parameter_that_gets_no_gradient_any_more_is_updated_as_in_eager_mode(name):
    """zero_grad() of OneFlow's optimizers leaves zeros, so decay and momentum go on; torch's drops them."""
    eager_model = TwoBranches()
    model = copy.deepcopy(eager_model)
    eager_optimizer, optimizer = (OPTIMIZERS_THAT_DECAY[name](m.parameters()) for m in (eager_model, model))

    def build(self, x):
        loss = self.m(x).square().mean()
        loss.backward()
        return loss

    def eager(m, o, x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()

    graph = graph_with(build, {"m": model}, [optimizer])
    for step in range(9):
        eager_model.uses_both = model.uses_both = 2 <= step < 4
        x = torch.randn(4, 3)
        eager(eager_model, eager_optimizer, x)
        graph(x) if step != 7 else eager(model, optimizer, x)
        for (path, expected), got in zip(eager_model.named_parameters(), model.parameters()):
            assert torch.equal(expected, got), (step, path)
    assert model.never.weight.grad is None


def test_a_gradient_of_eager_mode_counts_as_an_earlier_one():
    eager_model = TwoBranches()
    model = copy.deepcopy(eager_model)
    optimizers = [flow.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1) for m in (eager_model, model)]

    def build(self, x):
        loss = self.m(x).square().mean()
        loss.backward()
        return loss

    graph = graph_with(build, {"m": model}, optimizers[1:])
    for step in range(4):
        for m, o in zip((eager_model, model), optimizers):
            if m is model and step != 1:
                graph(torch.ones(4, 3))
                continue
            m.uses_both = step == 1
            o.zero_grad()
            m(torch.ones(4, 3)).square().mean().backward()
            o.step()
            m.uses_both = False
        assert torch.equal(eager_model.at_times.weight, model.at_times.weight), step


def test_gradients_are_left_alone():
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    before = model.weight.grad.clone()
    held = model.weight.grad

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    graph = graph_with(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])
    graph(torch.ones(3, 2))
    graph(torch.ones(3, 2))
    assert model.weight.grad is held and torch.equal(held, before)


def test_gan_with_two_optimizers_trains_as_eager():
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
    graph = graph_with(build, {"g": twins[0], "d": twins[1]}, twin_opts)
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

    graph = graph_with(build, {"m": model}, [flow.optim.SGD([group])])
    assert graph(torch.arange(8.0).reshape(4, 2)).item() == 28.0
    assert torch.allclose(model.weight, torch.tensor([[0.94, 0.92]]), atol=1e-6)


@pytest.mark.parametrize(
    "reduction, weight, losses", [("sum", [0.4, 0.2], [6.0, 22.0]), ("mean", [0.7, 0.6], [3.0, 11.0])]
)
def test_gradient_accumulation_as_oneflow_does(reduction, weight, losses):
    # recorded from OneFlow 0.9.0: gradients are averaged over the micro batches, 0-d outputs stacked, others
    # concatenated
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)

    def build(self, x):
        y = self.m(x)
        loss = getattr(y, reduction)()
        loss.backward()
        return loss, y

    graph = graph_with(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])
    graph.config.set_gradient_accumulation_steps(2)
    loss, y = graph(torch.arange(8.0).reshape(4, 2))
    assert loss.tolist() == losses and y.shape == (4, 1)
    assert torch.allclose(model.weight, torch.tensor([weight]), atol=1e-6)
    with pytest.raises(flow._errors.OneFlowError, match="micro batches"):
        graph(torch.ones(3, 2))


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
    graph = graph_with(build, (), opts[:1])
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        opts[1].zero_grad()
        loss = (x * v).pow(2).sum()
        loss.backward()
        opts[1].step()
        got, gx = graph(x.detach().requires_grad_())
        assert torch.equal(got, loss) and torch.equal(gx, x.grad) and torch.equal(v, w)


def test_autograd_sees_that_a_program_wrote_a_parameter():
    model = nn.Linear(2, 1)
    x = torch.ones(1, 2, requires_grad=True)
    pending = (model(x) * 2).sum()

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    graph_with(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])(torch.ones(1, 2))
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

    graph = graph_with(build, {"m": b, "e": extra_b}, [ob])
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
    actual, expected = Each()(x, y), gradients(model, x, y)
    assert list(actual) == list(expected) and all(torch.equal(actual[k], expected[k]) for k in expected)
