"""Common features of optimizers: variables, decay patterns, schedules, loss scales, losses (update rules:
test_legacy_update_rules.py).
"""

import math

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow.compatible.single_client as flow

opt = flow.optimizer


def const(lr=0.1):
    return opt.PiecewiseConstantScheduler([], [lr])


def test_weight_decay_includes_and_excludes():
    def body():
        a = flow.get_variable("net-weight", shape=(1,), initializer=flow.ones_initializer())
        b = flow.get_variable("net-bias", shape=(1,), initializer=flow.ones_initializer())
        opt.SGDW(const(), momentum=0, weight_decay=0.5, **how).minimize((a + b) * 0)

    for how, expected in (
        (dict(weight_decay_excludes=["bias", "norm"]), (0.95, 1)),
        (dict(weight_decay_includes=["bias$"]), (1, 0.95)),
    ):
        flow.clear_default_session()
        job_of(body, [], "train")()
        values = flow.get_all_variables()
        assert [values[n].numpy()[0] for n in ("net-weight", "net-bias")] == pytest.approx(expected)
    with pytest.raises(ValueError, match="not both"):
        opt.AdamW(const(), weight_decay=0.1, weight_decay_includes=["a"], weight_decay_excludes=["b"])


def test_lazy_adam_and_indexed_slices_leave_untouched_rows_alone():
    def body(i, lazily):
        table = flow.get_variable("table", shape=(4, 2), initializer=flow.ones_initializer())
        loss = flow.gather(table, i) * 2.0
        (opt.LazyAdam(const(0.5)) if lazily else opt.SGD(const(0.5), momentum=0.9)).minimize(loss)

    for lazily in (True, False):
        flow.clear_default_session()
        config = flow.function_config()
        if not lazily:
            config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["table"])))
        job = job_of(lambda i: body(i, lazily), [np.zeros(2, np.int32)], "train", config)
        job(np.array([1, 1], np.int32))
        first = flow.get_all_variables()["table"].numpy()
        assert (first[1] < 1).all() and (first[[0, 2, 3]] == 1).all()
        job(np.array([2, 2], np.int32))
        second = flow.get_all_variables()["table"].numpy()
        np.testing.assert_array_equal(second[1], first[1])  # a dense rule would move it on
        assert (second[2] < 1).all()


@pytest.mark.parametrize("eager", [False, True], ids=["captured", "op by op"])
@pytest.mark.parametrize("scale", [None, 2.0], ids=["table", "scaled table"])
@pytest.mark.parametrize("lazily", [False, True], ids=["indexed slices", "LazyAdam"])
def test_a_row_that_a_gather_read_changes_though_its_gradient_is_zero(lazily, scale, eager):
    """A padded or masked token keeps its momentum going, as in OneFlow."""
    flow.enable_eager_execution(eager)

    def body(i, mask):
        table = flow.get_variable("table", shape=(4, 2), initializer=flow.ones_initializer())
        tokens = flow.gather(table if scale is None else table * scale, i)
        optimizer = opt.LazyAdam(const(0.5)) if lazily else opt.SGD(const(0.5), momentum=0.5)
        optimizer.minimize(tokens * mask)

    config = flow.function_config()
    if not lazily:
        config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["table"])))
    ones, first = np.ones((2, 2), np.float32), np.array([1, 2], np.int32)
    job = job_of(body, [first, ones], "train", config)
    job(first, ones)
    before = flow.get_all_variables()["table"].numpy()
    job(np.array([1, 3], np.int32), ones * 0)
    after = flow.get_all_variables()["table"].numpy()
    assert ((before < 1) == [[False], [True], [True], [False]]).all()
    assert (after[1] < before[1]).all()  # momentum
    np.testing.assert_array_equal(after[[0, 2, 3]], before[[0, 2, 3]])


def test_two_optimizers_with_their_own_variables():
    def body():
        a = flow.get_variable("a", shape=(1,), initializer=flow.ones_initializer())
        b = flow.get_variable("b", shape=(1,), initializer=flow.ones_initializer())
        opt.CombinedOptimizer(
            [
                opt.SGD(const(0.1), momentum=0, variables=["a"]),
                opt.SGD(const(0.5), momentum=0, variables=lambda: ["b"]),
            ]
        ).minimize(a + b)

    job_of(body, [], "train")()
    values = flow.get_all_variables()
    assert (values["a"].numpy()[0], values["b"].numpy()[0]) == pytest.approx((0.9, 0.5))
    with pytest.raises(ValueError, match="no list of variables"):
        opt.CombinedOptimizer([opt.SGD(const()), opt.SGD(const())])


def test_a_variable_under_two_optimizers_is_an_error():
    def body():
        a = flow.get_variable("a", shape=(1,), initializer=flow.ones_initializer())
        opt.SGD(const()).minimize(a * 2)
        opt.SGD(const()).minimize(a * 3)

    with pytest.raises(ValueError, match="given to two optimizers"):
        job_of(body, [], "train")()


def test_dynamic_loss_scale_skips_and_grows():
    def body(x):
        w = flow.get_variable("w", shape=(1,), initializer=flow.ones_initializer())
        policy = opt.loss_scale.dynamic_loss_scale(initial_loss_scale=8.0, increment_period=2, multiplier=2.0)
        opt.SGD(const(0.5), momentum=0.9, loss_scale_policy=policy).minimize(w * x)

    job = job_of(body, [np.ones(1, np.float32)], "train")

    def step(x):
        job(np.array([x], np.float32))
        values = flow.get_all_variables()
        scale = next(v for n, v in values.items() if "LossScale" in n)
        return values["w"].numpy()[0], float(scale.numpy()), values["w-momentum"].numpy()[0]

    assert step(1.0) == pytest.approx((0.5, 8.0, -0.5))
    assert step(float("inf")) == pytest.approx((0.5, 4.0, -0.5))  # skipped
    assert step(0.0) == pytest.approx((0.05, 4.0, -0.45))
    assert step(0.0)[1] == 8.0


SCHEDULES = {
    "constant": (
        lambda w: opt.PiecewiseConstantScheduler([2, 4], [0.1, 0.2, 0.3], warmup=w),
        lambda s: 0.1 if s <= 2 else 0.2 if s <= 4 else 0.3,
        0.1,
    ),
    "scaling": (
        lambda w: opt.PiecewiseScalingScheduler(1.0, [2, 4], 0.5, warmup=w),
        lambda s: 1.0 if s <= 2 else 0.5 if s <= 4 else 0.25,
        1.0,
    ),
    "scaling-list": (
        lambda w: opt.PiecewiseScalingScheduler(1.0, [2, 4], [0.5, 0.1], warmup=w),
        lambda s: 1.0 if s <= 2 else 0.5 if s <= 4 else 0.05,
        1.0,
    ),
    "cosine": (
        lambda w: opt.CosineScheduler(0.4, 5, alpha=0.1, warmup=w),
        lambda s: 0.4 * (0.9 * 0.5 * (1 + math.cos(math.pi * min(s, 5) / 5)) + 0.1),
        0.4,
    ),
    "polynomial": (
        lambda w: opt.PolynomialScheduler(0.4, 5, end_learning_rate=0.01, power=2.0, warmup=w),
        lambda s: 0.39 * (1 - min(s, 5) / 5) ** 2 + 0.01,
        0.4,
    ),
    "polynomial-cycle": (
        lambda w: opt.PolynomialSchduler(0.4, 3, 0.01, 1.0, True, warmup=w),
        lambda s: 0.39 * (1 - s / (3 * max(1, math.ceil(s / 3)))) + 0.01,
        0.4,
    ),
    "linear-cosine": (
        lambda w: opt.LinearCosineScheduler(0.4, 5, num_periods=0.5, alpha=0.1, beta=0.01, warmup=w),
        lambda s: 0.4 * ((0.1 + 1 - min(s, 5) / 5) * 0.5 * (1 + math.cos(math.pi * min(s, 5) / 5)) + 0.01),
        0.4,
    ),
    "exponential": (
        lambda w: opt.ExponentialScheduler(0.4, 2, 0.5, warmup=w),
        lambda s: 0.4 * 0.5 ** (s / 2),
        0.4,
    ),
    "exponential-stairs": (
        lambda w: opt.ExponentialScheduler(0.4, 2, 0.5, staircase=True, warmup=w),
        lambda s: 0.4 * 0.5 ** (s // 2),
        0.4,
    ),
    "inverse-time": (
        lambda w: opt.InverseTimeScheduler(0.4, 2, 0.5, warmup=w),
        lambda s: 0.4 / (1 + 0.5 * s / 2),
        0.4,
    ),
    "natural-exp": (
        lambda w: opt.NaturalExpScheduler(0.4, 2, 0.5, warmup=w),
        lambda s: 0.4 * math.exp(-0.5 * s / 2),
        0.4,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name):
    make, formula, base = SCHEDULES[name]
    assert [make(None).learning_rate(s) for s in range(8)] == pytest.approx([formula(s) for s in range(8)])
    slow = make(opt.warmup.constant(3, 0.25))
    assert [slow.learning_rate(s) for s in range(5)] == pytest.approx(
        [base * 0.25] * 3 + [formula(3), formula(4)]
    )
    ramp = make(opt.warmup.linear(4, 0.2))
    assert [ramp.learning_rate(s) for s in range(6)] == pytest.approx(
        [base * (0.2 + 0.8 * s / 4) for s in range(4)] + [formula(4), formula(5)]
    )
    (kind,) = make(None).learning_rate_decay_conf
    assert kind.endswith("_conf") and "warmup_batches" in next(iter(ramp.warmup_conf.values()))


def test_the_schedule_drives_the_job_and_its_step_is_saved(tmp_path):
    def body():
        w = flow.get_variable("w", shape=(1,), initializer=flow.zeros_initializer())
        opt.SGD(opt.PiecewiseConstantScheduler([1], [1.0, 10.0]), momentum=0).minimize(w)

    job = job_of(body, [], "train")
    seen = []
    for _ in range(4):
        job()
        seen.append(-flow.get_all_variables()["w"].numpy()[0])
    assert seen == pytest.approx([1, 2, 12, 22])
    flow.checkpoint.save(str(tmp_path / "snap"))
    flow.train.CheckPoint().init()
    job()
    assert flow.get_all_variables()["w"].numpy()[0] == -1
    flow.load_variables(flow.checkpoint.get(str(tmp_path / "snap")))
    job()
    assert flow.get_all_variables()["w"].numpy()[0] == pytest.approx(-32)


@pytest.mark.parametrize(
    "optimizer",
    [lambda lr: opt.SGD(lr, momentum=0), lambda lr: opt.Adam(lr, do_bias_correction=True), opt.LAMB],
    ids=["SGD", "Adam", "LAMB"],
)
def test_custom_scheduler_reads_a_blob(optimizer):
    """A gradient of ones moves a weight by the learning rate."""

    def body(lr):
        w = flow.get_variable("w", shape=(1,), initializer=flow.zeros_initializer())
        optimizer(opt.CustomScheduler(lr.logical_blob_name)).minimize(w)

    job = job_of(body, [np.ones(1, np.float32)], "train")
    for lr in (0.5, 0.25):
        job(np.array([lr], np.float32))
        if optimizer is opt.LAMB:  # its trust ratio is 1 for a weight of zero only
            break
    assert flow.get_all_variables()["w"].numpy()[0] == pytest.approx(-0.5 if optimizer is opt.LAMB else -0.75)


def test_losses_of_several_elements_count_as_their_mean_but_watch_diff_sees_the_sum():
    got = {}

    def body(x):
        w = flow.get_variable("w", shape=(1,), initializer=flow.ones_initializer())
        loss = w * x
        flow.watch_diff(w, lambda d: got.update(w=d.numpy()))
        flow.watch_diff(loss, lambda d: got.update(loss=d.numpy()))
        opt.SGD(const(1.0), momentum=0).minimize(loss)

    job_of(body, [np.full(4, 2.0, np.float32)], "train")(np.full(4, 2.0, np.float32))
    assert got["w"].tolist() == [8.0] and got["loss"].tolist() == [1, 1, 1, 1]
    assert flow.get_all_variables()["w"].numpy()[0] == pytest.approx(1 - 2.0)


def test_arguments_that_are_refused():
    with pytest.raises(ValueError, match="2 boundaries need 3 values"):
        opt.PiecewiseConstantScheduler([1, 2], [0.1])
    with pytest.raises(NotImplementedError, match="legacy-train-step-lbn"):
        opt.SGD(const(), train_step_lbn="a/b")
    with pytest.raises(ValueError, match="not both"):
        opt.SGD(const(), loss_scale_factor=2, loss_scale_policy=opt.loss_scale.static_loss_scale(2))
    conf = {}
    opt.loss_scale.static_loss_scale(3).SetLossScaleFieldsInTrainConf(conf)
    opt.loss_scale.dynamic_loss_scale().SetLossScaleFieldsInTrainConf(conf)
    assert (
        conf["loss_scale_factor"] == 3.0
        and conf["dynamic_loss_scale_policy"]["initial_loss_scale"] == 2.0**30
    )
    assert opt.grad_clipping.by_global_norm(2.0).clip_conf == {"clip_by_global_norm": {"clip_norm": 2.0}}


def test_experimental_optim_scales_the_gradient():
    for cls, kwargs in (
        (flow.experimental.optim.SGD, {}),
        (flow.experimental.optim.Adam, {}),
        (flow.experimental.optim.AdamW, {}),
        (flow.experimental.optim.RMSprop, {}),
    ):
        p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
        p.grad, q.grad = torch.full((3,), 2.0), torch.full((3,), 1.0)
        cls([p], lr=0.1, scale=0.5, **kwargs).step()
        cls([q], lr=0.1, **kwargs).step()
        torch.testing.assert_close(p, q)
        assert (p != 1).all()


@pytest.mark.parametrize("steps", [0, -5, "ten"])
@pytest.mark.parametrize(
    "schedule",
    [
        opt.CosineScheduler,
        opt.PolynomialScheduler,
        opt.LinearCosineScheduler,
        lambda lr, steps: opt.ExponentialScheduler(lr, steps, 0.9),
        lambda lr, steps: opt.InverseTimeScheduler(lr, steps, 0.9),
        lambda lr, steps: opt.NaturalExpScheduler(lr, steps, 0.9),
    ],
)
def test_a_decay_over_no_steps_is_refused(schedule, steps):
    with pytest.raises(ValueError, match=f"Scheduler: steps must be a number above 0, found {steps!r}"):
        schedule(0.1, steps)


def test_an_optimizer_refuses_what_is_no_schedule():
    with pytest.raises(TypeError, match="SGD: lr_scheduler must be a schedule .*, found str"):
        opt.SGD("fast")
