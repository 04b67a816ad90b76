"""What optimizers accept, keep and refuse; torch's tools work on them."""
import copy
import inspect
import io
import pickle
import warnings

import pytest
import torch

import oneflow as flow
from oneflow.optim.ftrl import Ftrl
from oneflow.optim.optimizer import ParamGroup

BOTH = ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "LBFGS"]
OURS = [flow.optim.SGD, flow.optim.Adam, flow.optim.AdamW, flow.optim.Adagrad, flow.optim.Adadelta, flow.optim.RMSprop, flow.optim.LAMB, Ftrl]


def parameters():
    torch.manual_seed(0)
    return [flow.nn.Parameter(flow.randn(3, 2)), flow.nn.Parameter(flow.randn(4)), flow.nn.Parameter(flow.tensor(0.5))]


def run(o, params, steps=3):
    for _ in range(steps):
        o.zero_grad()
        sum((p * p * 0.7 + p).sum() for p in params).backward()
        o.step()
    return [p.detach().clone() for p in params]


def equal(xs, ys):
    return all(torch.equal(x, y) for x, y in zip(xs, ys))


@pytest.mark.parametrize("name", BOTH)
def test_is_torchs_class_too(name):
    ours = getattr(flow.optim, name)
    assert issubclass(ours, getattr(torch.optim, name)) and issubclass(ours, flow.optim.Optimizer)
    assert isinstance(ours(parameters()), torch.optim.Optimizer)


@pytest.mark.parametrize("name,options", [("SGD", {}), ("SGD", dict(momentum=0.9, nesterov=True)), ("SGD", dict(maximize=True)), ("Adam", dict(weight_decay=0.1)),
                                          ("Adam", dict(amsgrad=True)), ("AdamW", dict(weight_decay=0.2)), ("Adagrad", dict(lr_decay=0.1)), ("Adadelta", {})])
def test_equals_torch_bit_for_bit_where_the_formula_is_torchs(name, options):
    p, q = parameters(), parameters()
    ours = run(getattr(flow.optim, name)(p, lr=0.1, **options), p)
    assert equal(ours, run(getattr(torch.optim, name)(q, lr=0.1, **options), q))


def test_torch_only_optimizers_fall_through():
    assert flow.optim.NAdam is torch.optim.NAdam
    from torch.optim.sgd import sgd as theirs

    from oneflow.optim.sgd import sgd

    assert sgd is theirs


def test_deep_paths():
    from oneflow.nn.optimizer.adamw import AdamW
    from oneflow.nn.optimizer.lamb import LAMB
    from oneflow.nn.optimizer.optimizer import Optimizer, required
    from oneflow.optim.adam import Adam

    assert (AdamW, LAMB, Optimizer, Adam) == (flow.optim.AdamW, flow.optim.LAMB, flow.optim.Optimizer, flow.optim.Adam)
    assert repr(required) == "<required parameter>"


def test_defaults_are_oneflows():
    wanted = {"SGD": dict(lr=1e-3), "Adam": dict(lr=1e-3), "AdamW": dict(weight_decay=0), "Adagrad": dict(lr=1e-3), "RMSprop": dict(lr=1e-3), "LBFGS": dict(lr=1e-3)}
    for name, defaults in wanted.items():
        group = getattr(flow.optim, name)(parameters()).param_groups[0]
        assert {k: group[k] for k in defaults} == defaults, name


def test_positional_order_is_oneflows():
    assert list(inspect.signature(flow.optim.SGD).parameters)[:9] == [
        "params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "contiguous_params", "fused"]
    group = flow.optim.SGD(parameters(), 0.1, 0.9, 0.2, 0.01, True, True).param_groups[0]
    assert (group["lr"], group["momentum"], group["dampening"], group["weight_decay"], group["nesterov"], group["maximize"]) == (0.1, 0.9, 0.2, 0.01, True, True)
    assert flow.optim.Adam(parameters(), 0.1, (0.5, 0.6), 1e-3, 0.2, True, False).param_groups[0]["do_bias_correction"] is False
    assert flow.optim.Adadelta(parameters(), 1.0, 0.9, 1e-6, 0, True).param_groups[0]["maximize"] is True


# ---------------------------------------------------------------------- gradients
def test_zero_grad_keeps_zero_tensors():
    p = parameters()
    o = flow.optim.SGD(p)
    p[0].sum().backward()
    o.zero_grad()
    assert torch.equal(p[0].grad, torch.zeros(3, 2)) and p[1].grad is None
    o.zero_grad(set_to_none=True)
    assert p[0].grad is None


def test_clip_grad_uses_each_groups_own_norm():
    p, q, r = parameters()
    o = flow.optim.SGD([{"params": [p], "clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}, {"params": [q]}, {"params": [r], "clip_grad_max_norm": 9.0}], lr=0.1)
    for t in (p, q, r):
        t.grad = torch.full_like(t, 3.0)
    assert o.clip_grad() is None
    assert p.grad.norm().item() == pytest.approx(0.5, rel=1e-5)
    assert torch.equal(q.grad, torch.full_like(q, 3.0)) and r.grad.item() == 3.0


def test_clip_grad_warns_when_no_group_asks_for_it():
    o = flow.optim.SGD(parameters())
    with pytest.warns(UserWarning, match="clip_grad_max_norm"):
        o.clip_grad()


def test_clip_grad_can_refuse_nonfinite():
    p = parameters()[0]
    o = flow.optim.SGD([{"params": [p], "clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}])
    p.grad = torch.full_like(p, float("inf"))
    with pytest.raises(RuntimeError, match="non-finite"):
        o.clip_grad(error_if_nonfinite=True)


# ---------------------------------------------------------------------- groups
def test_param_group_is_a_dict_with_oneflows_accessors():
    p, q, _ = parameters()
    o = flow.optim.Adam([{"params": [p], "lr": 0.5}, {"params": q, "name": "q"}])
    first, second = o.param_groups
    assert isinstance(first, ParamGroup) and isinstance(first, dict)
    assert first.parameters is first["params"] and first.parameters[0] is p
    assert first["lr"] == 0.5 and second["lr"] == 1e-3 and second["name"] == "q"
    assert "lr" in first and "params" not in first.options and first.options["lr"] == 0.5
    first.options["lr"] = 0.25
    assert first["lr"] == 0.25
    first["lr"] = 0.125
    assert dict(first.options)["lr"] == 0.125
    first.setdefault("initial_lr", 3)
    assert first["initial_lr"] == 3


def test_groups_stay_param_groups_after_copy_load_and_pickle():
    p = parameters()
    o = flow.optim.AdamW(p, do_bias_correction=False)
    run(o, p)
    o.load_state_dict(o.state_dict())
    for other in (o, copy.deepcopy(o), pickle.loads(pickle.dumps(o))):
        assert type(other.param_groups[0]) is ParamGroup and other.param_groups[0].options["do_bias_correction"] is False
    assert type(o.state_dict()["param_groups"][0]) is dict


def test_oneflow_style_param_group_constructor():
    p = parameters()[0]
    group = ParamGroup({"params": [p], "lr": 2}, {"lr": 1, "momentum": 3})
    assert dict(group.options) == {"lr": 2, "momentum": 3} and group.parameters == [p]


def test_add_param_group():
    p, q, _ = parameters()
    o = flow.optim.AdamW([p])
    o.add_param_group({"params": [q], "lr": 0.5})
    assert o.param_groups[1]["do_bias_correction"] is True and o.param_groups[1]["lr"] == 0.5
    with pytest.raises(ValueError, match="more than one parameter group"):
        o.add_param_group({"params": [p]})
    with pytest.raises(TypeError, match="takes a dict"):
        o.add_param_group([q])
    with pytest.raises(ValueError, match="needs the key 'params'"):
        o.add_param_group({"lr": 1})


@pytest.mark.parametrize("cls", OURS)
def test_support_sparse(cls):
    assert cls(parameters()).support_sparse is (cls.__name__ in ("SGD", "Adam", "AdamW"))


# ---------------------------------------------------------------------- user classes
def test_a_subclass_in_oneflows_style():
    class Plain(flow.optim.Optimizer):
        def __init__(self, parameters, lr=0.1):
            super().__init__(parameters, {"lr": lr})

        def step(self, closure=None):
            with flow.no_grad():
                for group in self.param_groups:
                    for p in group.parameters:
                        p.sub_(p.grad * group["lr"])
            self._state["step"] = self._state["step"] + 1

    p, q = parameters(), parameters()
    o = Plain(p)
    assert equal(run(o, p), run(flow.optim.SGD(q, lr=0.1), q)) or all(torch.allclose(a, b) for a, b in zip(p, q))
    assert o._state["step"] == 3 and o._default_options["lr"] == 0.1


def test_a_subclass_in_torchs_style():
    class Plain(flow.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params=params, defaults=dict(lr=lr))

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["n"] = self.state[p].get("n", 0) + 1
                    p.add_(p.grad, alpha=-group["lr"])

    p, q = parameters(), parameters()
    o = Plain(p)
    assert equal(run(o, p), run(torch.optim.SGD(q, lr=0.1), q))
    assert o.state[p[0]]["n"] == 3
    with pytest.raises(TypeError, match="needs the parameters"):
        flow.optim.Optimizer()


# ---------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("cls", OURS)
@pytest.mark.parametrize("layout", ["torch", "oneflow"])
def test_state_dict_resumes_exactly(cls, layout):
    p = parameters()
    o = cls(p, lr=0.05)
    run(o, p)
    q = [flow.nn.Parameter(t.detach().clone()) for t in p]
    other = cls(q, lr=0.9)
    file = io.BytesIO()
    torch.save(o.state_dict(layout=layout), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert equal(run(o, p), run(other, q))


@pytest.mark.parametrize("name", [n for n in BOTH if n not in ("RMSprop", "LBFGS")])
def test_state_dicts_go_to_torch_and_back(name):
    p = parameters()
    o = getattr(flow.optim, name)(p, lr=0.05)
    run(o, p)
    q, r = ([flow.nn.Parameter(t.detach().clone()) for t in p] for _ in range(2))
    theirs = getattr(torch.optim, name)(q)
    theirs.load_state_dict(copy.deepcopy(o.state_dict()))
    back = getattr(flow.optim, name)(r)
    back.load_state_dict(copy.deepcopy(theirs.state_dict()))
    first = run(o, p)
    assert equal(first, run(theirs, q)) and equal(first, run(back, r))


def test_a_checkpoint_of_plain_torch_gets_oneflows_options():
    p = parameters()
    theirs = torch.optim.AdamW(p, lr=0.05)
    run(theirs, p)
    ours = flow.optim.AdamW(p, do_bias_correction=False)
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["do_bias_correction"] is False and ours.param_groups[0]["weight_decay"] == 0.01


def test_layout_errors():
    with pytest.raises(NotImplementedError, match="optimizer-state-layout"):
        flow.optim.LBFGS(parameters()).state_dict(layout="oneflow")
    with pytest.raises(ValueError, match="'torch' or 'oneflow'"):
        flow.optim.SGD(parameters()).state_dict(layout="x")
    p = parameters()
    saved = flow.optim.SGD([{"params": p[:1]}, {"params": p[1:]}]).state_dict(layout="oneflow")
    with pytest.raises(ValueError, match="2 parameter groups, the optimizer 1"):
        flow.optim.SGD(p).load_state_dict(saved)


# ---------------------------------------------------------------------- formulas of our own
@pytest.mark.parametrize("options", [{}, dict(centered=True), dict(momentum=0.9, weight_decay=0.1), dict(maximize=True, centered=True, momentum=0.5)])
def test_rmsprop_multi_tensor_equals_single_tensor(options):
    p, q = parameters(), parameters()
    one = run(flow.optim.RMSprop(p, lr=0.01, foreach=False, **options), p)
    assert equal(one, run(flow.optim.RMSprop(q, lr=0.01, foreach=True, **options), q))


def test_rmsprop_momentum_accumulates_as_in_torch():
    # torch with eps outside: the same for eps = 0
    p, q = parameters(), parameters()
    ours = run(flow.optim.RMSprop(p, lr=0.01, eps=0.0, momentum=0.9), p)
    theirs = run(torch.optim.RMSprop(q, lr=0.01, eps=0.0, momentum=0.9), q)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cls", [flow.optim.Adam, flow.optim.AdamW])
@pytest.mark.parametrize("kernels", [dict(foreach=True), dict(foreach=False), dict(fused=True)])
def test_adam_without_bias_correction(cls, kernels):
    p, q = parameters(), parameters()
    decay = 0.1
    got = run(cls(p, lr=0.01, weight_decay=decay, do_bias_correction=False, **kernels), p)
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
    run(o, p, 4)
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
def test_closure(cls):
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
    ps = [flow.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)), flow.nn.Parameter(torch.ones(2, dtype=torch.float64)), flow.nn.Parameter(torch.ones(0, 4))]
    after = run(cls(ps, lr=0.1), ps, 2)
    assert [a.dtype for a in after] == [torch.bfloat16, torch.float64, torch.float32]
    assert all(torch.isfinite(a).all() for a in after) and not torch.equal(after[1], torch.ones(2, dtype=torch.float64))


def test_sparse_gradients():
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
    for cls in (flow.optim.RMSprop, flow.optim.LAMB, Ftrl, flow.optim.Adam):
        with pytest.raises(RuntimeError, match="sparse"):
            cls(emb.parameters()).step()


@pytest.mark.parametrize("cls", [flow.optim.RMSprop, flow.optim.LAMB, Ftrl])
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


def test_constructor_errors():
    p = parameters()
    for call in (
        lambda: flow.optim.SGD([]), lambda: flow.optim.SGD(p, lr=-1.0), lambda: flow.optim.SGD(p, momentum=-1.0),
        lambda: flow.optim.Adam(p, betas=(1.0, 0.5)), lambda: flow.optim.Adam(p, eps=-1.0), lambda: flow.optim.LAMB(p, betas=(0.5, 1.0)),
        lambda: flow.optim.LAMB(p, amsgrad=True), lambda: flow.optim.LAMB(p, lr=-1), lambda: flow.optim.RMSprop(p, alpha=-1.0), lambda: Ftrl(p, lr_power=1.0),
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
    got = run(cls(p, lr=flow.tensor(0.125)), p)
    for x, y in zip(got, run(cls(q, lr=0.125), q)):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cls", [flow.optim.SGD, flow.optim.Adam, flow.optim.RMSprop])
def test_contiguous_params_packs_and_gives_the_same_numbers(cls):
    p, q = parameters(), parameters()
    o = cls(p, lr=0.05, contiguous_params=True)
    assert len({t.untyped_storage().data_ptr() for t in p}) == 1
    assert len({t.grad.untyped_storage().data_ptr() for t in p}) == 1
    assert equal(run(o, p), run(cls(q, lr=0.05), q))
    (buffer,) = o.param_groups[0].contiguous_parameters
    assert buffer.data_ptr() == p[0].data_ptr()
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


@pytest.mark.parametrize("cls", [flow.optim.SGD, flow.optim.RMSprop, flow.optim.LAMB, Ftrl])
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
