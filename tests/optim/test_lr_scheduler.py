"""Protocol of the schedulers: names, user classes, state, composition, printing, mixing with torch's."""

import copy
import math
import pickle
import warnings

import pytest
import torch

import oneflow as flow
from oneflow.optim import lr_scheduler as L

T = torch.optim.lr_scheduler


def optimizer(lr=0.1, kind=flow.optim.SGD, groups=1):
    return kind([{"params": [flow.nn.Parameter(flow.ones(2))]} for _ in range(groups)], lr=lr)


def trace(scheduler, steps=12):
    o, out = scheduler.optimizer, []
    for _ in range(steps):
        out.append(o.param_groups[0]["lr"])
        o.step()
        scheduler.step()
    return out


@pytest.mark.parametrize(
    "name",
    [n for n in L.__dict__ if n.endswith("LR") and hasattr(T, n)]
    + ["ReduceLROnPlateau", "CosineAnnealingWarmRestarts", "ChainedScheduler"],
)
def test_is_torchs_class_too(name):
    assert issubclass(getattr(L, name), getattr(T, name))
    assert issubclass(getattr(L, name), T.LRScheduler)


def test_names_are_torchs_classes_or_oneflows_aliases():
    assert L.OneCycleLR is T.OneCycleLR and L.CyclicLR is T.CyclicLR
    assert (
        L.WarmupLR is L.WarmUpLR
        and isinstance(L.StepLR(optimizer(), 1), L._LRScheduler)
        and issubclass(L.WarmUpLR, L._LRScheduler)
    )
    from oneflow.nn.optimizer.lr_scheduler import LRScheduler, LrScheduler
    from oneflow.nn.optimizer.step_lr import StepLR
    from oneflow.nn.optimizer.warmup_lr import WarmUpLR

    assert LRScheduler is LrScheduler is L.LRScheduler and StepLR is L.StepLR and WarmUpLR is L.WarmUpLR


def test_both_names_of_the_step():
    s = L.StepLR(optimizer(), 2)
    assert s.last_step == s.last_epoch == 0
    s.step()
    assert s.last_step == s.last_epoch == 1 and s.get_last_lr() == [0.1]
    s.last_step = 4
    assert s.last_epoch == 4
    o = optimizer()
    for key in ("last_step", "last_epoch"):
        o.param_groups[0]["initial_lr"] = 0.1
        L.StepLR(o, 2, **{key: 5})
        assert o.param_groups[0]["lr"] == pytest.approx(0.1 * 0.1**3), key
    with pytest.raises(KeyError, match="initial_lr"):
        L.StepLR(optimizer(), 2, last_step=5)


def test_user_class_with_oneflows_get_lr():
    class Linear(L.LRScheduler):
        def get_lr(self, base_lr, step):
            return base_lr * (1 + step)

    s = Linear(optimizer(groups=2), verbose=False)
    assert trace(s, 3) == pytest.approx([0.1, 0.2, 0.3])
    assert s.get_last_lr() == pytest.approx([0.4, 0.4])


def test_user_class_with_torchs_get_lr():
    class Halve(L.LRScheduler):
        def __init__(self, optimizer, last_epoch=-1):
            super().__init__(optimizer, last_epoch)

        def get_lr(self):
            assert self._get_lr_called_within_step
            return [g["lr"] * (0.5 if self.last_epoch else 1) for g in self.optimizer.param_groups]

    class OfTorch(T.LRScheduler):
        get_lr = Halve.get_lr

    assert trace(Halve(optimizer()), 4) == trace(OfTorch(optimizer()), 4) == [0.1, 0.05, 0.025, 0.0125]


def test_get_lr_of_all_groups_at_the_present_step():
    """Programs for torch print scheduler.get_lr()[0], and libraries step a schedule by last_epoch += 1;
    get_lr().
    """

    class Mine(L.StepLR):
        def get_lr(self, base_lr, step):
            return 2 * super().get_lr(base_lr, step)

    w = [torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))]
    optimizer = flow.optim.SGD([{"params": w[:1], "lr": 1.0}, {"params": w[1:], "lr": 0.1}], lr=1.0)
    schedule = L.ExponentialLR(optimizer, 0.5)
    assert schedule.get_lr() == [1.0, 0.1]
    schedule.step()
    assert schedule.get_lr() == [g["lr"] for g in optimizer.param_groups] == [0.5, 0.05]
    schedule.last_epoch += 1
    assert schedule.get_lr() == [0.25, 0.025] and schedule.get_lr(base_lr=8.0, step=3) == 1.0
    assert Mine(flow.optim.SGD(w, lr=0.25), 2).get_lr() == [0.5]


def test_user_class_without_get_lr():
    class Empty(L.LRScheduler):
        pass

    with pytest.raises(NotImplementedError, match="get_lr"):
        Empty(optimizer())


@pytest.mark.parametrize("kind", [flow.optim.SGD, torch.optim.SGD])
def test_on_optimizers_of_both_libraries(kind):
    assert trace(L.ExponentialLR(optimizer(kind=kind), 0.5), 3) == [0.1, 0.05, 0.025]


def test_tensor_learning_rate_is_changed_in_place():
    lr = flow.tensor(0.5)
    o = optimizer(lr=lr)
    held = o.param_groups[0]["lr"]
    s = L.ExponentialLR(o, 0.5)
    s.step()
    assert o.param_groups[0]["lr"] is held and held.item() == 0.25 and s.base_lrs[0].item() == 0.5


def test_step_to_an_epoch():
    s = L.CosineAnnealingWarmRestarts(optimizer(), 4, 2)
    theirs = T.CosineAnnealingWarmRestarts(optimizer(), 4, 2)
    for epoch in (0.5, 1.25, 4.0, 7.5, 12.5, 3):
        s.step(epoch)
        theirs.step(epoch)
        assert s.get_last_lr() == pytest.approx(theirs.get_last_lr()), epoch
        assert (s.T_cur, s.T_i) == pytest.approx((theirs.T_cur, theirs.T_i))
    with pytest.raises(ValueError, match="negative"):
        s.step(-1)


@pytest.mark.parametrize(
    "make",
    [
        lambda m, o: m.StepLR(o, 3, 0.5),
        lambda m, o: m.MultiStepLR(o, [2, 5, 5], 0.3),
        lambda m, o: m.ExponentialLR(o, 0.9),
        lambda m, o: m.ConstantLR(o, 0.5, 4),
        lambda m, o: m.LinearLR(o, 0.2, 1.0, 5),
        lambda m, o: m.CosineAnnealingLR(o, 5, 0.01),
        lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
        lambda m, o: m.LambdaLR(o, lambda e: 1 / (1 + e)),
        lambda m, o: m.MultiplicativeLR(o, lambda e: 0.9),
        lambda m, o: m.PolynomialLR(o, total_iters=5, power=2.0),
    ],
)
def test_equals_torch_where_the_meaning_is_torchs(make):
    assert trace(make(L, optimizer())) == pytest.approx(trace(make(T, optimizer())), abs=1e-15)


# ---------------------------------------------------------------------- composition
def test_sequential_with_members_of_torch_is_torchs():
    def build(m, one):
        o = optimizer()
        return m.SequentialLR(o, [m.ConstantLR(o, 0.1, 3), one(o)], [3])

    def halve(o):
        return T.ExponentialLR(o, 0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert trace(build(L, halve)) == pytest.approx(trace(build(T, halve)))
        with pytest.raises(TypeError, match="ExponentialLR is torch's"):
            build(L, halve).get_lr(0.1, 2)


def test_torchs_sequential_takes_our_members():
    def build(m):
        o = optimizer()
        return T.SequentialLR(o, [m.LinearLR(o, 0.5, 1.0, 3), m.ExponentialLR(o, 0.5)], [3])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert trace(build(L)) == pytest.approx(trace(build(T)))


def test_sequential_accepts_torchs_last_epoch_in_the_fourth_place():
    o = optimizer()
    s = L.SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)], [3], -1)
    assert s.interval_rescaling == [False] and s.last_step == 0


def test_chained_with_a_member_of_torch_is_torchs():
    def build(m):
        o = optimizer()
        return m.ChainedScheduler([m.ConstantLR(o, 0.1, 3), T.ExponentialLR(o, 0.5), m.StepLR(o, 4)])

    assert trace(build(L)) == pytest.approx(trace(build(T)))


def test_a_warmup_around_a_sequence_runs_both():
    o = optimizer()
    inner = L.SequentialLR(o, [L.ConstantLR(o, 0.5, 9), L.ExponentialLR(o, 0.9)], [4])
    s = L.WarmUpLR(inner, 0.0, 2, warmup_prefix=True)
    got = trace(s, 8)
    assert got[:2] == pytest.approx([0.0, 0.05])
    assert got[2:6] == pytest.approx([0.05] * 4) and got[6:] == pytest.approx([0.1 * 0.9**4, 0.1 * 0.9**5])


def test_lambda_per_group_inside_a_composition():
    o = optimizer(groups=2)
    s = L.WarmUpLR(L.LambdaLR(o, [lambda e: 0.5, lambda e: 0.25]), 0.1, 2, "constant")
    s.step()
    s.step()
    assert s.get_last_lr() == pytest.approx([0.05, 0.025])


def test_different_warmups_are_refused():
    o = flow.optim.SGD(
        [{"params": [flow.nn.Parameter(flow.ones(1))], "lr": lr} for lr in (0.1, 0.05)], lr=1.0
    )
    L.WarmUpLR(L.StepLR(o, 3), 0.1, 4)
    with pytest.raises(ValueError, match="different warm-ups"):
        L.WarmUpLR(L.LambdaLR(o, [lambda e: 0.5, lambda e: 0.25]), 0.1, 4)


def test_wrong_arguments_are_named():
    o = optimizer()
    for call, text in (
        (lambda: L.StepLR(o, 0), "step_size=0"),
        (lambda: L.ConstantLR(o, 1.5), r"factor=1.5 must be in \[0, 1\]"),
        (lambda: L.LinearLR(o, -0.1), "start_factor"),
        (lambda: L.PolynomialLR(o, 0), "decay_batch=0"),
        (lambda: L.CosineDecayLR(o, 0), "decay_steps=0"),
        (lambda: L.CosineAnnealingWarmRestarts(o, 0), "T_0=0"),
        (lambda: L.LambdaLR(o, [abs, abs]), "2 functions for 1"),
        (lambda: L.WarmUpLR(o, 0.1, 3, "bad"), "'bad'"),
        (lambda: L.WarmUpLR(o, 1.5), "warmup_factor=1.5"),
        (lambda: L.WarmUpLR(o, 0.1, 0), "needs a scheduler"),
        (lambda: L.WarmUpLR(o, 0.1, -1), "warmup_iters=-1"),
        (lambda: L.ChainedScheduler([]), "non-empty"),
        (lambda: L.SequentialLR(o, [], []), "non-empty list"),
        (lambda: L.SequentialLR(o, [L.StepLR(o, 1)], [3]), "need 0 milestones, got 1"),
        (lambda: L.SequentialLR(o, [L.StepLR(o, 1), L.StepLR(optimizer(), 1)], [3]), "another optimizer"),
        (
            lambda: L.SequentialLR(o, [L.StepLR(o, 1), L.StepLR(o, 1)], [3], [True, False]),
            "interval_rescaling",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="not an Optimizer"):
        L.StepLR(3, 1)
    with pytest.raises(TypeError, match="not both"):
        L.PolynomialLR(o, 5, total_iters=3)
    with pytest.raises(TypeError, match="not both"):
        L.PolynomialLR(o, 5, steps=3)


def test_polynomial_takes_its_older_argument_name():
    old, new = (
        L.PolynomialLR(optimizer(), end_learning_rate=0, power=2.0, cycle=False, **how)
        for how in ({"steps": 4}, {"decay_batch": 4})
    )
    assert trace(old, 6) == trace(new, 6) and len(set(trace(L.PolynomialLR(optimizer(), steps=4), 4))) == 4


# ---------------------------------------------------------------------- state
MAKERS = {
    "step": lambda o: L.StepLR(o, 3, 0.5),
    "cawr": lambda o: L.CosineAnnealingWarmRestarts(o, 2, 2, 0.01, 0.5),
    "lambda": lambda o: L.LambdaLR(o, lambda e: 0.9**e),
    "multiplicative": lambda o: L.MultiplicativeLR(o, lambda e: 0.9),
    "warmup": lambda o: L.WarmUpLR(L.CosineDecayLR(o, 9), 0.1, 3),
    "sequential": lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)], [3], True),
    "chained": lambda o: L.ChainedScheduler([L.StepLR(o, 2), L.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_state_dict_resumes(name):
    s = MAKERS[name](optimizer())
    trace(s, 4)
    saved, saved_optimizer = copy.deepcopy(s.state_dict()), copy.deepcopy(s.optimizer.state_dict())
    assert saved["last_step"] == saved["last_epoch"] == 4 and "optimizer" not in saved
    other = MAKERS[name](optimizer())
    other.optimizer.load_state_dict(saved_optimizer)
    other.load_state_dict(saved)
    assert trace(other, 6) == trace(s, 6)


def test_a_oneflow_state_dict_is_accepted():
    s = L.StepLR(optimizer(), 9)
    s.load_state_dict(
        {
            "step_size": 3,
            "gamma": 0.1,
            "last_step": 4,
            "verbose": False,
            "base_lrs": [0.2],
            "_last_lr": [0.02],
        }
    )
    assert (s.last_step, s.last_epoch, s.step_size) == (4, 4, 3)
    s.step()
    s.step()
    assert s.get_last_lr() == pytest.approx([0.2 * 0.1**2])


def test_a_torch_state_dict_is_accepted():
    theirs = T.StepLR(optimizer(), 3)
    trace(theirs, 4)
    s = L.StepLR(optimizer(), 3)
    s.load_state_dict(theirs.state_dict())
    assert s.last_step == 4 and trace(s, 6)[1:] == pytest.approx(trace(theirs, 6)[1:])


def test_a_polynomial_state_has_oneflows_keys_and_takes_torchs():
    """OneFlow calls decay_batch max_decay_steps in its states; a loaded state replaces what the constructor
    was given.
    """
    saved = {
        "max_decay_steps": 5,
        "end_learning_rate": 0.05,
        "power": 1.0,
        "cycle": False,
        "last_step": 2,
        "verbose": False,
        "base_lrs": [0.2],
        "_last_lr": [0.14],
    }
    s = L.PolynomialLR(optimizer(), 50)
    s.load_state_dict(saved)
    s.step()
    assert s.get_last_lr() == pytest.approx([0.11]) and saved.keys() <= s.state_dict().keys()
    theirs = T.PolynomialLR(optimizer(), 5)
    trace(theirs, 2)
    s = L.PolynomialLR(optimizer(), 50, cycle=True)
    s.load_state_dict(theirs.state_dict())
    assert s.total_iters == 5 and trace(s, 4)[1:] == pytest.approx(trace(theirs, 4)[1:])


def test_callable_objects_keep_their_attributes():
    class Scale:
        def __init__(self, k):
            self.k = k

        def __call__(self, step):
            return self.k

    s = L.LambdaLR(optimizer(), Scale(0.5))
    saved = s.state_dict()
    assert saved["lr_lambdas"] == [{"k": 0.5}]
    other = L.LambdaLR(optimizer(), Scale(0.1))
    other.load_state_dict(saved)
    other.step()
    assert other.get_last_lr() == [0.05]


def test_schedulers_pickle_and_deepcopy():
    s = L.WarmUpLR(L.StepLR(optimizer(), 3), 0.1, 2)
    trace(s, 3)
    for other in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert trace(other, 3) == trace(copy.deepcopy(s), 3)


# ---------------------------------------------------------------------- plateau, printing
def test_plateau_names_of_both_libraries():
    o = optimizer()
    s = L.ReduceLROnPlateau(o, "max", 0.5, 1, 0.1, "abs", 0, 0, 1e-8, True)
    assert s.verbose is True and s.is_better(1.2, 1.0) and not s.is_better(1.05, 1.0) and not s.in_cooldown
    s.step(1.0)
    s.step(1.0)
    assert s.num_bad_steps == s.num_bad_epochs == 1 and s.last_step == s.last_epoch == 2
    state = s.state_dict()
    assert state["num_bad_steps"] == 1 and state["last_step"] == 2
    other = L.ReduceLROnPlateau(optimizer(), "max")
    other.load_state_dict({k: v for k, v in state.items() if k not in ("num_bad_epochs", "last_epoch")})
    assert other.num_bad_epochs == 1 and other.last_epoch == 2


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_is_better_is_the_rule_that_step_uses(mode, threshold_mode):
    for best in (2.0, -2.0):
        for a in (1.0, 1.95, 2.0, 2.05, 3.0, -1.95, -2.05, -3.0):
            s = L.ReduceLROnPlateau(optimizer(), mode, threshold=0.1, threshold_mode=threshold_mode)
            s.step(best)
            better = s.is_better(a, best)
            s.step(a)
            assert (s.best == a and s.num_bad_epochs == 0) == better or a == best, (best, a)


def test_verbose_prints_one_line_per_group(capsys):
    s = L.StepLR(optimizer(groups=2), 1, verbose=True)
    capsys.readouterr()
    s.step()
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 2
        and lines[1].startswith("Last step 1 of <class 'oneflow.")
        and lines[1].endswith("adjusting learning rate of param_groups[1] to 0.01000")
    )
    L.StepLR(optimizer(), 1)
    assert capsys.readouterr().out == ""


def test_no_warning_about_the_order_of_steps():
    """nn.Graph steps the optimizer itself, so torch's check of who called step() first would be wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s = L.CosineDecayLR(optimizer(), 4)
        s.step()
        s.step()
    assert s.get_last_lr() == pytest.approx([0.1 * 0.5 * (1 + math.cos(math.pi / 2))])
