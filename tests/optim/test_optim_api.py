"""Arguments, state and errors of optimizers."""

import copy
import inspect
import io
import pickle

import numpy as np
import pytest
import torch
from optim_helpers import BOTH, OURS, equal, parameters, train_on_squares

import oneflow as flow
from oneflow.optim.optimizer import ParamGroup


@pytest.mark.parametrize("name", BOTH)
def test_is_torchs_class_too(name):
    ours = getattr(flow.optim, name)
    assert issubclass(ours, getattr(torch.optim, name)) and issubclass(ours, flow.optim.Optimizer)
    assert isinstance(ours(parameters()), torch.optim.Optimizer)


@pytest.mark.parametrize(
    "name,options",
    [
        ("SGD", {}),
        ("SGD", dict(momentum=0.9, nesterov=True)),
        ("SGD", dict(maximize=True)),
        ("Adam", dict(weight_decay=0.1)),
        ("Adam", dict(amsgrad=True)),
        ("AdamW", dict(weight_decay=0.2)),
        ("Adagrad", dict(lr_decay=0.1)),
        ("Adadelta", {}),
    ],
)
def test_equals_torch_bit_for_bit_where_the_formula_is_torchs(name, options):
    p, q = parameters(), parameters()
    ours = train_on_squares(getattr(flow.optim, name)(p, lr=0.1, **options), p)
    assert equal(ours, train_on_squares(getattr(torch.optim, name)(q, lr=0.1, **options), q))


def test_base_classes_count_torchs_own_objects_in():
    """Code with `import oneflow as torch` asks isinstance(o, torch.optim.Optimizer) of optimizers other
    libraries made.
    """
    theirs = torch.optim.NAdam(parameters())
    assert isinstance(theirs, flow.optim.Optimizer) and issubclass(torch.optim.NAdam, flow.optim.Optimizer)
    assert not isinstance(torch.optim.Adam(parameters()), flow.optim.Adam) and not isinstance(
        3, flow.optim.Optimizer
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.1, total_steps=5)
    assert isinstance(schedule, flow.optim.lr_scheduler.LRScheduler)
    assert not isinstance(torch.optim.lr_scheduler.StepLR(theirs, 2), flow.optim.lr_scheduler.StepLR)


def test_torch_only_optimizers_fall_through():
    assert flow.optim.NAdam is torch.optim.NAdam
    from torch.optim.sgd import sgd as theirs

    from oneflow.optim.sgd import sgd

    assert sgd is theirs


def test_deep_paths_give_the_same_classes():
    from oneflow.nn.optimizer.adamw import AdamW
    from oneflow.nn.optimizer.lamb import LAMB
    from oneflow.nn.optimizer.optimizer import Optimizer, required
    from oneflow.optim.adam import Adam

    assert (AdamW, LAMB, Optimizer, Adam) == (
        flow.optim.AdamW,
        flow.optim.LAMB,
        flow.optim.Optimizer,
        flow.optim.Adam,
    )
    assert repr(required) == "<required parameter>"


def test_defaults_are_oneflows():
    expected = {
        "SGD": dict(lr=1e-3),
        "Adam": dict(lr=1e-3),
        "AdamW": dict(weight_decay=0),
        "Adagrad": dict(lr=1e-3),
        "RMSprop": dict(lr=1e-3),
        "LBFGS": dict(lr=1e-3),
    }
    for name, defaults in expected.items():
        group = getattr(flow.optim, name)(parameters()).param_groups[0]
        assert {k: group[k] for k in defaults} == defaults, name


@pytest.mark.parametrize("betas", [(0, 0.9), [0.5, 0], (np.float32(0.5), 0.75)], ids=str)
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_betas_are_any_numbers(name, betas):
    """As the GANs write them; torch wants two floats."""
    weights = []
    for group_betas in (betas, tuple(map(float, betas))):
        weight = torch.ones(2, requires_grad=True)
        optimizer = getattr(flow.optim, name)([{"params": [weight], "betas": group_betas}], betas=group_betas)
        for _ in range(2):
            weight.square().sum().backward()
            optimizer.step()
        weights.append(weight.detach())
    assert torch.equal(*weights)
    with pytest.raises(ValueError, match="beta"):
        getattr(flow.optim, name)([weight], betas=(0, 1))


def test_positional_order_is_oneflows():
    assert list(inspect.signature(flow.optim.SGD).parameters)[:9] == [
        "params",
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "maximize",
        "contiguous_params",
        "fused",
    ]
    group = flow.optim.SGD(parameters(), 0.1, 0.9, 0.2, 0.01, True, True).param_groups[0]
    assert (
        group["lr"],
        group["momentum"],
        group["dampening"],
        group["weight_decay"],
        group["nesterov"],
        group["maximize"],
    ) == (0.1, 0.9, 0.2, 0.01, True, True)
    assert (
        flow.optim.Adam(parameters(), 0.1, (0.5, 0.6), 1e-3, 0.2, True, False).param_groups[0][
            "do_bias_correction"
        ]
        is False
    )
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
    o = flow.optim.SGD(
        [
            {"params": [p], "clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0},
            {"params": [q]},
            {"params": [r], "clip_grad_max_norm": 9.0},
        ],
        lr=0.1,
    )
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
    train_on_squares(o, p)
    o.load_state_dict(o.state_dict())
    for other in (o, copy.deepcopy(o), pickle.loads(pickle.dumps(o))):
        assert (
            type(other.param_groups[0]) is ParamGroup
            and other.param_groups[0].options["do_bias_correction"] is False
        )
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
def test_three_optimizers_take_sparse_gradients(cls):
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
    assert equal(train_on_squares(o, p), train_on_squares(flow.optim.SGD(q, lr=0.1), q)) or all(
        torch.allclose(a, b) for a, b in zip(p, q)
    )
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
    assert equal(train_on_squares(o, p), train_on_squares(torch.optim.SGD(q, lr=0.1), q))
    assert o.state[p[0]]["n"] == 3
    with pytest.raises(TypeError, match="needs the parameters"):
        flow.optim.Optimizer()


# ---------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("cls", OURS)
@pytest.mark.parametrize("layout", ["torch", "oneflow"])
def test_state_dict_resumes_exactly(cls, layout):
    p = parameters()
    o = cls(p, lr=0.05)
    train_on_squares(o, p)
    q = [flow.nn.Parameter(t.detach().clone()) for t in p]
    other = cls(q, lr=0.9)
    file = io.BytesIO()
    torch.save(o.state_dict(layout=layout), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert equal(train_on_squares(o, p), train_on_squares(other, q))


@pytest.mark.parametrize("name", [n for n in BOTH if n not in ("RMSprop", "LBFGS")])
def test_state_dicts_go_to_torch_and_back(name):
    p = parameters()
    o = getattr(flow.optim, name)(p, lr=0.05)
    train_on_squares(o, p)
    q, r = ([flow.nn.Parameter(t.detach().clone()) for t in p] for _ in range(2))
    theirs = getattr(torch.optim, name)(q)
    theirs.load_state_dict(copy.deepcopy(o.state_dict()))
    back = getattr(flow.optim, name)(r)
    back.load_state_dict(copy.deepcopy(theirs.state_dict()))
    first = train_on_squares(o, p)
    assert equal(first, train_on_squares(theirs, q)) and equal(first, train_on_squares(back, r))


def test_a_checkpoint_of_plain_torch_gets_oneflows_options():
    p = parameters()
    theirs = torch.optim.AdamW(p, lr=0.05)
    train_on_squares(theirs, p)
    ours = flow.optim.AdamW(p, do_bias_correction=False)
    ours.load_state_dict(theirs.state_dict())
    assert (
        ours.param_groups[0]["do_bias_correction"] is False and ours.param_groups[0]["weight_decay"] == 0.01
    )


@pytest.mark.parametrize("cls", [flow.optim.Adam, flow.optim.AdamW, flow.optim.LAMB])
@pytest.mark.parametrize(
    "correct, steps, expected",
    [(False, 2, (1.0, 1.0)), (True, 0, (1.0, 1.0)), (True, 2, (1 - 0.8**2, 1 - 0.9**2))],
)
def test_oneflows_layout_has_the_corrections_oneflow_goes_on_with(cls, correct, steps, expected):
    """OneFlow 0.9.0 stores 1 without bias correction and before the first step, and uses the stored values
    when it resumes.
    """
    p = parameters()
    o = cls(p, lr=0.05, betas=(0.8, 0.9), do_bias_correction=correct)
    train_on_squares(o, p, steps)
    options = o.state_dict(layout="oneflow")["param_groups"][0]["_options"]
    assert (options["bias_correction1"], options["bias_correction2"]) == pytest.approx(expected)


def test_a_state_dict_of_an_unknown_or_unfit_layout_is_an_error():
    with pytest.raises(NotImplementedError, match="optimizer-state-layout"):
        flow.optim.LBFGS(parameters()).state_dict(layout="oneflow")
    with pytest.raises(ValueError, match="'torch' or 'oneflow'"):
        flow.optim.SGD(parameters()).state_dict(layout="x")
    p = parameters()
    saved = flow.optim.SGD([{"params": p[:1]}, {"params": p[1:]}]).state_dict(layout="oneflow")
    with pytest.raises(ValueError, match="2 parameter groups, the optimizer 1"):
        flow.optim.SGD(p).load_state_dict(saved)


@pytest.mark.parametrize("later", [False, True], ids=["at first", "added later"])
def test_adagrad_starts_a_group_from_its_own_initial_value(later):
    """Recorded from OneFlow 0.9.0: four steps of gradient 2 from 1."""
    x, other = flow.nn.Parameter(flow.ones(2)), flow.nn.Parameter(flow.ones(2))
    group = {"params": [x], "lr": 0.1, "initial_accumulator_value": 0.5}
    optimizer = flow.optim.Adagrad([{"params": [other], "lr": 0.1}] if later else [group])
    if later:
        optimizer.add_param_group(group)
    for _ in range(4):
        (x * 2 + other * 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert np.allclose(x.numpy(), 0.73131, atol=1e-5)
    assert optimizer.state_dict()["param_groups"][-1]["initial_accumulator_value"] == 0.5


def test_differentiable_rmsprop_is_part_of_the_computation():
    g = flow.tensor([0.5, 2.0], requires_grad=True)
    p = flow.ones(2, requires_grad=True).clone()
    optimizer = flow.optim.RMSprop(
        [flow.nn.Parameter(flow.ones(2))], lr=0.1, alpha=0.5, eps=1.0, differentiable=True
    )
    optimizer.param_groups[0]["params"][0] = p
    p.grad = g * 1
    optimizer.step()
    want = flow.autograd.grad((1 - 0.1 * g / (0.5 * g * g + 1.0).sqrt()).sum(), g)[0]
    assert np.allclose(flow.autograd.grad(p.sum(), g)[0], want, rtol=1e-6)
