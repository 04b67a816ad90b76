"""Optimizer steps against formulas in this file, edge cases of parameters and gradients, and torch's tools
with our optimizers.
"""

import warnings

import pytest
import torch
from optim_helpers import OURS, equal, parameters, train_on_squares
from time_limits import seconds

import oneflow as flow


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(centered=True),
        dict(momentum=0.9, weight_decay=0.1),
        dict(maximize=True, centered=True, momentum=0.5),
    ],
)
def test_rmsprop_multi_tensor_equals_single_tensor(options):
    p, q = parameters(), parameters()
    one = train_on_squares(flow.optim.RMSprop(p, lr=0.01, foreach=False, **options), p)
    assert equal(one, train_on_squares(flow.optim.RMSprop(q, lr=0.01, foreach=True, **options), q))


def test_rmsprop_momentum_accumulates_as_in_torch():
    # torch with eps outside: the same for eps = 0
    p, q = parameters(), parameters()
    ours = train_on_squares(flow.optim.RMSprop(p, lr=0.01, eps=0.0, momentum=0.9), p)
    theirs = train_on_squares(torch.optim.RMSprop(q, lr=0.01, eps=0.0, momentum=0.9), q)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cls", [flow.optim.Adam, flow.optim.AdamW])
@pytest.mark.parametrize("kernels", [dict(foreach=True), dict(foreach=False), dict(fused=True)])
def test_adam_without_bias_correction(cls, kernels):
    p, q = parameters(), parameters()
    decay = 0.1
    got = train_on_squares(cls(p, lr=0.01, weight_decay=decay, do_bias_correction=False, **kernels), p)
    m, v = [torch.zeros_like(t) for t in q], [torch.zeros_like(t) for t in q]
    for _ in range(3):
        for t, a, b in zip(q, m, v):
            g = 1.4 * t.detach() + 1
            wd = decay * t.detach()
            if cls is flow.optim.Adam:
                g = g + wd
            a.mul_(0.9).add_(0.1 * g)
            b.mul_(0.999).add_(0.001 * g * g)
            t.data -= 0.01 * (a / (b.sqrt() + 1e-8) + (wd if cls is flow.optim.AdamW else 0))
    for x, y in zip(got, q):
        torch.testing.assert_close(x, y.detach(), rtol=1e-5, atol=1e-6)


def test_step_counter_advances_without_bias_correction():
    p = parameters()
    o = flow.optim.Adam(p, do_bias_correction=False)
    train_on_squares(o, p, 4)
    assert [int(o.state[t]["step"]) for t in p] == [4, 4, 4]


def test_lbfgs_minimises():
    p = flow.nn.Parameter(flow.tensor([3.0, -2.0]))
    o = flow.optim.LBFGS([p], lr=1.0, line_search_fn="strong_wolfe")

    def closure():
        o.zero_grad()
        loss = ((p - flow.tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        return loss

    o.step(closure)
    assert torch.allclose(p, torch.tensor([1.0, 2.0]), atol=1e-4)


@pytest.mark.parametrize("cls", OURS)
def test_step_runs_its_closure_with_gradients(cls):
    p = parameters()
    o = cls(p, lr=0.05)

    def closure():
        assert torch.is_grad_enabled()
        o.zero_grad()
        loss = sum((t * t).sum() for t in p)
        loss.backward()
        return loss

    first, second = o.step(closure), o.step(closure)
    assert second < first and o.step() is None


# ---------------------------------------------------------------------- edge cases
@pytest.mark.parametrize("cls", OURS)
def test_parameters_without_gradient_stay(cls):
    p, q, frozen = parameters()
    frozen.requires_grad_(False)
    o = cls([p, q, frozen], lr=0.1)
    before = [t.detach().clone() for t in (q, frozen)]
    o.step()
    p.sum().backward()
    o.step()
    assert torch.equal(q, before[0]) and torch.equal(frozen, before[1]) and p.grad is not None
    assert q not in o.state or not o.state[q] or "sum" in o.state[q]


@pytest.mark.parametrize("cls", OURS)
def test_bfloat16_and_float64_and_empty_parameters(cls):
    ps = [
        flow.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
        flow.nn.Parameter(torch.ones(2, dtype=torch.float64)),
        flow.nn.Parameter(torch.ones(0, 4)),
    ]
    after = train_on_squares(cls(ps, lr=0.1), ps, 2)
    assert [a.dtype for a in after] == [torch.bfloat16, torch.float64, torch.float32]
    assert all(torch.isfinite(a).all() for a in after) and not torch.equal(
        after[1], torch.ones(2, dtype=torch.float64)
    )


def test_sgd_updates_only_rows_with_a_sparse_gradient():
    emb = flow.nn.Embedding(5, 3, sparse=True)
    before = emb.weight.detach().clone()
    o = flow.optim.SGD(emb.parameters(), lr=0.1)
    emb(flow.tensor([1, 3, 3])).sum().backward()
    assert emb.weight.grad.is_sparse
    o.step()
    want = before.clone()
    want[1] -= 0.1
    want[3] -= 0.2
    assert torch.allclose(emb.weight, want)
    for cls in (flow.optim.RMSprop, flow.optim.LAMB, flow.optim.Ftrl, flow.optim.Adam):
        with pytest.raises(RuntimeError, match="sparse"):
            cls(emb.parameters()).step()


@pytest.mark.parametrize("cls", [flow.optim.RMSprop, flow.optim.LAMB, flow.optim.Ftrl])
def test_complex_parameters_are_refused(cls):
    p = flow.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="complex"):
        cls([p]).step()


def test_lamb_keeps_ratio_one_at_zero_norm():
    p = flow.nn.Parameter(flow.zeros(3))
    p.grad = flow.ones(3)
    flow.optim.LAMB([p], lr=0.1).step()
    torch.testing.assert_close(p.detach(), torch.full((3,), -0.1))
    q = flow.nn.Parameter(flow.ones(3))
    q.grad = flow.zeros(3)
    flow.optim.LAMB([q], lr=0.1).step()
    assert torch.equal(q.detach(), torch.ones(3))


def test_constructors_refuse_wrong_arguments():
    p = parameters()
    for call in (
        lambda: flow.optim.SGD([]),
        lambda: flow.optim.SGD(p, lr=-1.0),
        lambda: flow.optim.SGD(p, momentum=-1.0),
        lambda: flow.optim.Adam(p, betas=(1.0, 0.5)),
        lambda: flow.optim.Adam(p, eps=-1.0),
        lambda: flow.optim.LAMB(p, betas=(0.5, 1.0)),
        lambda: flow.optim.LAMB(p, amsgrad=True),
        lambda: flow.optim.LAMB(p, lr=-1),
        lambda: flow.optim.RMSprop(p, alpha=-1.0),
        lambda: flow.optim.Ftrl(p, lr_power=1.0),
        lambda: flow.optim.SGD([{"params": [p[0]]}, {"params": [p[0]]}]),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="iterable of Tensors"):
        flow.optim.SGD(p[0])
    with pytest.raises(ValueError, match="non-leaf"):
        flow.optim.SGD([p[0] * 2])


def test_a_duplicate_in_one_group_warns_and_counts_twice():
    p = flow.nn.Parameter(flow.ones(2))
    with pytest.warns(UserWarning, match="duplicate"):
        o = flow.optim.SGD([p, p], lr=0.5)
    p.grad = flow.ones(2)
    o.step()
    assert torch.equal(p.detach(), torch.zeros(2))


@pytest.mark.parametrize("cls", [flow.optim.SGD, flow.optim.RMSprop, flow.optim.LAMB, flow.optim.Adam])
def test_tensor_learning_rate(cls):
    p, q = parameters(), parameters()
    got = train_on_squares(cls(p, lr=flow.tensor(0.125)), p)
    for x, y in zip(got, train_on_squares(cls(q, lr=0.125), q)):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cls", [flow.optim.SGD, flow.optim.Adam, flow.optim.RMSprop])
def test_contiguous_params_packs_and_gives_the_same_numbers(cls):
    p, q = parameters(), parameters()
    o = cls(p, lr=0.05, contiguous_params=True)
    assert len({t.untyped_storage().data_ptr() for t in p}) == 1
    assert len({t.grad.untyped_storage().data_ptr() for t in p}) == 1
    assert equal(train_on_squares(o, p), train_on_squares(cls(q, lr=0.05), q))
    (buffer,) = o.param_groups[0].contiguous_parameters
    assert buffer.data_ptr() == p[0].data_ptr()
    o.zero_grad(set_to_none=True)
    assert o.param_groups[0].contiguous_parameters[0].data_ptr() == buffer.data_ptr() and p[0].grad is None
    p[0].data = p[0].data.clone()
    with pytest.raises(RuntimeError, match="no longer lie in one buffer"):
        o.param_groups[0].contiguous_parameters
    more = [flow.nn.Parameter(flow.ones(2)), flow.nn.Parameter(flow.ones(3))]
    o.add_param_group({"params": more})
    assert more[0].untyped_storage().data_ptr() == more[1].untyped_storage().data_ptr()
    with pytest.raises(AttributeError, match="contiguous_params=True"):
        cls(q).param_groups[0].contiguous_parameters


def test_torch_tools_work():
    p = parameters()
    o = flow.optim.AdamW(p, lr=0.1)
    torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=9).step()
    calls = []
    o.register_step_post_hook(lambda *a: calls.append(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(sum(t.sum() for t in p)).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler.step(o)
    scaler.update()
    assert calls == [1] and "Parameter Group 0" in repr(o)


@pytest.mark.parametrize("cls", [flow.optim.SGD, flow.optim.RMSprop, flow.optim.LAMB, flow.optim.Ftrl])
def test_step_traces_without_reading_values(cls):
    """make_fx records the step; torch's Adam, Adagrad and Adadelta read their step counters."""
    from torch.fx.experimental.proxy_tensor import make_fx

    p, q = parameters(), parameters()

    def step(*grads):
        o = cls(p, lr=0.1)
        for t, g in zip(p, grads):
            t.grad = g
        o.step()
        return [t.detach().clone() for t in p]

    grads = [torch.full_like(t, 0.5) for t in p]
    start = [t.detach().clone() for t in p]
    make_fx(step)(*grads)
    for t, g, s in zip(q, grads, start):
        t.data.copy_(s)
        t.grad = g
    cls(q, lr=0.1).step()
    assert equal([t.detach() for t in p], [t.detach() for t in q])


def test_swa_takes_use_buffers_in_the_fourth_place():
    from oneflow.optim.swa_utils import AveragedModel

    model = flow.nn.BatchNorm1d(2)
    averaged = AveragedModel(model, None, None, True)
    assert averaged.use_buffers is True
    averaged.update_parameters(model)
    assert int(averaged.n_averaged) == 1


@pytest.mark.parametrize("cls", OURS)
def test_torch_compile_runs_the_step(cls):
    """Dynamo knows plain dicts as groups only, so step() stays eager inside a compiled function."""
    p, q = parameters(), parameters()
    compiled, plain = cls(p, lr=0.05), cls(q, lr=0.05)
    for t, u in zip(p, q):
        t.grad, u.grad = torch.ones_like(t), torch.ones_like(u)
    step = torch.compile(compiled.step, backend="eager")
    for _ in range(2):
        step()
        plain.step()
    assert equal([t.detach() for t in p], [t.detach() for t in q])


def test_one_training_step_in_graph_equals_eager():
    """The engine records step() itself, whatever the options."""

    def build(cls, options):
        torch.manual_seed(0)
        model = flow.nn.Linear(4, 3)
        o = cls(model.parameters(), lr=0.1, **options)
        return model, o, flow.optim.lr_scheduler.WarmUpLR(flow.optim.lr_scheduler.CosineDecayLR(o, 9), 0.1, 2)

    x = flow.randn(5, 4)
    for cls, options in (
        (flow.optim.SGD, dict(momentum=0.9, dampening=0.2, nesterov=True)),
        (flow.optim.Adam, dict(do_bias_correction=False)),
        (flow.optim.AdamW, dict(amsgrad=True)),
        (flow.optim.RMSprop, dict(centered=True)),
        (flow.optim.LAMB, dict(weight_decay=0.1)),
        (flow.optim.Adagrad, dict(lr_decay=0.1)),
        (flow.optim.Adadelta, {}),
        (flow.optim.Ftrl, dict(lambda1=0.01)),
    ):
        model, o, schedule = build(cls, options)

        class Step(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.config.set_backend("aten")  # the backend that changes no number
                self.add_optimizer(o, lr_sch=schedule)

            def build(self, x):
                loss = (self.model(x) ** 2).mean()
                loss.backward()
                return loss

        graph = Step()
        for _ in range(4):
            graph(x)
        eager, p, s = build(cls, options)
        for _ in range(4):
            p.zero_grad()
            (eager(x) ** 2).mean().backward()
            p.step()
            s.step()
        assert torch.equal(model.weight, eager.weight), (cls.__name__, options)


def test_dialect_switches_to_torchs_classes():
    import subprocess
    import sys

    program = (
        "import oneflow as flow, torch; ours = flow.optim.AdamW; flow.set_dialect('torch'); "
        "assert flow.optim.AdamW is torch.optim.AdamW and flow.optim.lr_scheduler.PolynomialLR is"
        " torch.optim.lr_scheduler.PolynomialLR; "
        "assert flow.inference_mode is torch.inference_mode and flow.nn.utils.clip_grad_norm_ is"
        " torch.nn.utils.clip_grad_norm_; "
        "assert flow.amp.GradScaler is torch.amp.GradScaler; flow.set_dialect('oneflow'); assert"
        " flow.optim.AdamW is ours is not torch.optim.AdamW"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=seconds(60))
