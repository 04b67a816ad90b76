"""Ten steps of every job-function optimizer agree with the update rules of OneFlow's kernels."""

import json
from pathlib import Path

import legacy_update_rules as rules
import numpy as np
import pytest
from legacy_jobs import job_of

import oneflow
import oneflow.compatible.single_client as flow

opt = flow.optimizer
STEPS = 10
START = np.random.default_rng(3).normal(size=(3, 4))
BATCHES = np.random.default_rng(4).normal(size=(STEPS, 3, 4)).astype(np.float32)
# row t % 3 gets no gradient in step t
SPARSE = BATCHES * (np.arange(STEPS)[:, None, None] % 3 != np.arange(3)[None, :, None])


def rate(lr=rules.LR):
    return opt.PiecewiseConstantScheduler([], [lr])


def trained(make, batches=BATCHES, regularizer=None, start=START):
    """Values of the variable after each step; the loss w * x has the gradient x / x.size."""

    def body(x):
        w = flow.get_variable(
            "w", shape=start.shape, initializer=flow.zeros_initializer(), regularizer=regularizer
        )
        make().minimize(w * x)

    job = job_of(body, [batches[0]], "train")
    flow.load_variables({"w": start.astype(np.float32)})
    values = []
    for x in batches:
        job(x)
        values.append(flow.get_all_variables()["w"].numpy().copy())
    return values


def expected(rule, batches=BATCHES, start=START):
    p, state, values = start.copy(), {}, []
    for t, x in enumerate(batches):
        p = rule(p, x.astype(np.float64) / x.size, state, t)
        values.append(p)
    return values


def assert_follows(make, rule, batches=BATCHES, **kwargs):
    for value, formula in zip(trained(make, batches, **kwargs), expected(rule, batches), strict=True):
        np.testing.assert_allclose(value, formula, rtol=5e-5, atol=5e-6)  # float32 over ten steps


RULES = {
    "SGD": (lambda: opt.SGD(rate(), momentum=0), rules.sgd()),
    "SGD-momentum": (lambda: opt.SGD(rate()), rules.momentum(0.9)),
    "SGDW": (lambda: opt.SGDW(rate(), momentum=0.5, weight_decay=0.3), rules.momentum(0.5, 0.3)),
    "SGDW-plain": (lambda: opt.SGDW(rate(), momentum=0, weight_decay=0.3), rules.sgd(0.3)),
    "Adam": (lambda: opt.Adam(rate(), beta2=0.99, epsilon=1e-3), rules.adam()),
    "Adam-corrected": (
        lambda: opt.Adam(rate(), 0.9, 0.99, epsilon=1e-3, do_bias_correction=True),
        rules.adam(correct=True),
    ),
    "AdamW": (lambda: opt.AdamW(rate(), beta2=0.99, epsilon=1e-3, weight_decay=0.2), rules.adam(decay=0.2)),
    "AdamW-corrected": (
        lambda: opt.AdamW(rate(), beta2=0.99, epsilon=1e-3, do_bias_correction=True, weight_decay=0.2),
        rules.adam(correct=True, decay=0.2),
    ),
    "LazyAdam": (lambda: opt.LazyAdam(rate(), beta2=0.99, epsilon=1e-3), rules.adam(correct=True)),
    "RMSProp": (lambda: opt.RMSProp(rate(), decay_rate=0.9, epsilon=1e-3), rules.rmsprop(False)),
    "RMSProp-centered": (
        lambda: opt.RMSProp(rate(), decay_rate=0.9, epsilon=1e-3, centered=True),
        rules.rmsprop(True),
    ),
    "LARS": (lambda: opt.LARS(rate(), lars_coefficient=0.01), rules.lars()),
    "LARS-decay": (lambda: opt.LARS(rate(), lars_coefficient=0.01, weight_decay=0.2), rules.lars(decay=0.2)),
    "LAMB": (lambda: opt.LAMB(rate(), beta2=0.99), rules.lamb()),
    "LAMB-decay": (lambda: opt.LAMB(rate(), beta2=0.99, weight_decay=0.2), rules.lamb(decay=0.2)),
    "CombinedOptimizer": (
        lambda: opt.CombinedOptimizer([opt.SGD(rate(), momentum=0, variables=["w"])]),
        rules.sgd(),
    ),
    "static-loss-scale": (
        lambda: opt.SGD(rate(), loss_scale_policy=opt.loss_scale.static_loss_scale(128.0)),
        rules.momentum(0.9),
    ),
    "loss_scale_factor": (lambda: opt.SGD(rate(), loss_scale_factor=64), rules.momentum(0.9)),
    "clipped": (
        lambda: opt.SGD(rate(), momentum=0, grad_clipping=opt.grad_clipping.by_global_norm(0.05)),
        lambda p, g, state, t: p - rules.LR * g * 0.05 / max(0.05, np.linalg.norm(g)),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_optimizer_follows_the_kernel(name):
    assert_follows(*RULES[name])


CONFS = {
    "naive_conf": ({"naive_conf": {}}, rules.sgd()),
    "momentum_conf": ({"momentum_conf": {"beta": 0.8}}, rules.momentum(0.8)),
    "adam_conf": (
        {"adam_conf": {"beta2": 0.99, "epsilon": 1e-3, "do_bias_correction": True}},
        rules.adam_0_4(),
    ),
    "adam_conf-decay": (
        {
            "adam_conf": {"beta2": 0.99, "epsilon": 1e-3, "do_bias_correction": True},
            "weight_decay_conf": {"weight_decay_rate": 0.2},
        },
        rules.adam_0_4(decay=0.2),
    ),
    "lazy_adam_conf": ({"lazy_adam_conf": {"beta2": 0.99, "epsilon": 1e-3}}, rules.adam_0_4()),
    "rmsprop_conf": ({"rmsprop_conf": {"decay_rate": 0.9, "epsilon": 1e-3}}, rules.rmsprop(False)),
    "lars_conf": ({"lars_conf": {"momentum_beta": 0.9, "lars_coefficient": 0.01}}, rules.lars()),
    "lamb_conf": (
        {"lamb_conf": {"beta2": 0.99}, "weight_decay_conf": {"weight_decay_rate": 0.2}},
        rules.lamb(decay=0.2),
    ),
    "decay": ({"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": 0.3}}, rules.sgd(0.3)),
    "excluded": (
        {"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": 0.3, "excludes": {"pattern": ["^w$"]}}},
        rules.sgd(),
    ),
}


@pytest.mark.parametrize("name", CONFS)
def test_optimizer_given_by_the_function_config(name):
    conf, rule = CONFS[name]
    config = flow.function_config()
    config.train.primary_lr(rules.LR)
    config.train.model_update_conf(conf)

    def body(x):
        w = flow.get_variable("w", shape=(3, 4), initializer=flow.zeros_initializer())
        flow.losses.add_loss(w * x)

    job = job_of(body, [BATCHES[0]], "train", config)
    flow.load_variables({"w": START.astype(np.float32)})
    for x, formula in zip(BATCHES, expected(rule), strict=True):
        job(x)
        np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), formula, rtol=5e-5, atol=5e-6)


def test_every_optimizer_of_the_api_has_a_rule():
    optimizers = {
        name
        for name in opt.__all__
        if isinstance(getattr(opt, name), type) and issubclass(getattr(opt, name), opt.Optimizer)
    }
    assert optimizers - {"Optimizer"} == {name.partition("-")[0] for name in RULES} & optimizers


def test_lazy_adam_moves_rows_with_a_gradient():
    assert_follows(
        lambda: opt.LazyAdam(rate(), beta2=0.99, epsilon=1e-3),
        rules.rows_only(rules.adam(correct=True)),
        SPARSE,
    )


@pytest.mark.parametrize(
    "make, rule",
    [
        (lambda: opt.SGD(rate()), rules.momentum(0.9)),
        (
            lambda: opt.Adam(rate(), beta2=0.99, epsilon=1e-3, do_bias_correction=True),
            rules.adam(correct=True),
        ),
    ],
    ids=["SGD", "Adam"],
)
def test_indexed_slices_move_rows_with_a_gradient(make, rule):
    def body(x):
        make().minimize(flow.get_variable("w", shape=START.shape, initializer=flow.zeros_initializer()) * x)

    config = flow.function_config()
    config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["w"])))
    job = job_of(body, [SPARSE[0]], "train", config)
    flow.load_variables({"w": START.astype(np.float32)})
    for x, formula in zip(SPARSE, expected(rules.rows_only(rule), SPARSE), strict=True):
        job(x)
        np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), formula, rtol=5e-5, atol=5e-6)


def test_lazy_adam_corrects_the_bias():
    ones = np.full((4, 1, 1), 1, np.float32)
    values = trained(lambda: opt.LazyAdam(rate()), ones, start=np.ones((1, 1)))
    np.testing.assert_allclose(np.ravel(values), [0.9, 0.8, 0.7, 0.6], rtol=1e-5)


ADAM = {"beta2": 0.99, "epsilon": 1e-3}
# name: (arguments, arguments of both rules)
ADAMS = {
    "Adam": (ADAM, {}),
    "Adam-corrected": ({**ADAM, "do_bias_correction": True}, {"correct": True}),
    "AdamW": ({**ADAM, "weight_decay": 0.2}, {"decay": 0.2}),
    "AdamW-corrected": (
        {**ADAM, "do_bias_correction": True, "weight_decay": 0.2},
        {"correct": True, "decay": 0.2},
    ),
    "LazyAdam": (ADAM, {"correct": True}),
}


@pytest.mark.parametrize("name", ADAMS)
def test_the_path_of_an_optimizer_selects_the_rule_of_its_version(name):
    """oneflow.optimizer is that of OneFlow 0.4, and single_client that of 0.5."""
    from oneflow.python.ops import optimizer as in_sources

    arguments, options = ADAMS[name]
    older = getattr(oneflow.optimizer, name.partition("-")[0])
    assert getattr(in_sources, older.__name__) is older and issubclass(older, getattr(opt, older.__name__))
    decay = options.get("decay", 0.0)
    rule_0_4 = rules.adam_0_4(decay=decay) if options.get("correct") else rules.adam(decay=decay)
    assert_follows(lambda: older(rate(), **arguments), rule_0_4)
    flow.clear_default_session()
    assert_follows(lambda: getattr(opt, older.__name__)(rate(), **arguments), rules.adam(**options))


def test_indexed_slices_follow_the_rule_of_0_4():
    """Rows that are gathered twice sum their gradients; the table may be scaled on the way."""
    table, ids = np.random.default_rng(5).normal(size=(6, 2)), np.array([[0, 3], [3, 5]], np.int32)

    def body(ids):
        w = flow.get_variable("w", shape=table.shape, initializer=flow.zeros_initializer())
        loss = flow.math.reduce_mean(flow.gather(w * 2.0, ids))
        older = oneflow.optimizer.AdamW(rate(), 0.9, 0.99, 1e-3, True, weight_decay=0.2)
        older.minimize(loss)

    config = oneflow.function_config()
    config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["w"])))
    job = job_of(body, [ids], "train", config)
    flow.load_variables({"w": table.astype(np.float32)})
    gradient = np.zeros_like(table)
    np.add.at(gradient, ids.ravel(), 2.0 / 8)
    rule, state, value = rules.rows_only(rules.adam_0_4(decay=0.2)), {}, table
    for t in range(5):
        job(ids)
        value = rule(value, gradient, state, t)
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), value, rtol=5e-5, atol=5e-6)


def test_rules_of_0_4_and_0_5_differ_only_in_decay_and_epsilon():
    newer = expected(rules.adam(epsilon=1e-12, correct=True))
    np.testing.assert_allclose(newer, expected(rules.adam_0_4(epsilon=1e-12)), rtol=1e-6)
    decayed = expected(rules.adam(epsilon=1e-12, correct=True, decay=0.2))
    assert np.abs(np.subtract(decayed, expected(rules.adam_0_4(epsilon=1e-12, decay=0.2)))).max() > 1e-3


RECORDED = json.loads((Path(__file__).parent.parent / "golden" / "legacy_optimizers.json").read_text())[
    "values"
]


@pytest.mark.parametrize("name", RECORDED)
def test_rule_gives_the_ten_steps_of_oneflow_0_9(name):
    """The rules are float64 formulas written from the kernels; OneFlow 0.9.0 ran its own kernels in
    float32.
    """
    value = expected(RULES[name][1])[-1]
    np.testing.assert_allclose(value.ravel(), RECORDED[name], rtol=2e-5, atol=2e-6)  # float32 over ten steps


def test_only_rules_without_an_optimizer_in_0_9_are_unrecorded():
    rest = {name for name in RULES if name not in RECORDED}
    assert rest == {
        "SGDW",
        "LARS",
        "LARS-decay",
        "CombinedOptimizer",
        "static-loss-scale",
        "loss_scale_factor",
        "clipped",
    }


def test_rules_agree_with_the_values_of_oneflow_0_9():
    start, batches = np.array([1.0, -2.0, 3.0]), np.array([(0.1, 0.2, -0.3)]) * np.arange(1, 4)[:, None] * 3
    np.testing.assert_allclose(
        expected(rules.lamb(epsilon=1e-3, decay=0.5), batches, start), rules.LAMB_OF_0_9, rtol=1e-5
    )
    for centered, values in rules.RMSPROP_OF_0_9.items():
        np.testing.assert_allclose(
            expected(rules.rmsprop(centered, epsilon=0.1), batches, start), values, rtol=1e-5
        )


@pytest.mark.parametrize(
    "regularizer, part",
    [
        (flow.regularizers.l2(0.3), lambda p: 0.3 * p),
        (flow.regularizers.l1(0.2), lambda p: 0.2 * np.sign(p)),
        (flow.regularizers.l1_l2(0.2, 0.3), lambda p: 0.2 * np.sign(p) + 0.3 * p),
    ],
    ids=["l2", "l1", "l1_l2"],
)
def test_regularizers_add_to_the_gradient(regularizer, part):
    assert_follows(
        lambda: opt.SGD(rate(), momentum=0),
        lambda p, g, state, t: p - rules.LR * (g + part(p)),
        regularizer=regularizer,
    )


def test_l1_leaves_zeros_alone():
    """Source: l1_l2_regularize_gradient_kernel_util.h; the sign of 0 is 0."""
    zero = np.zeros((2, 2))
    values = trained(
        lambda: opt.SGD(rate(), momentum=0), zero[None].astype(np.float32), flow.regularizers.l1(0.2), zero
    )
    np.testing.assert_array_equal(values[0], zero)


@pytest.mark.parametrize("patterns", ["bias", ["bias"]], ids=["string", "list"])
def test_weight_decay_patterns_may_be_one_string(patterns):
    excluding, including = (
        opt.SGDW(rate(), weight_decay=0.5, weight_decay_excludes=patterns),
        opt.LAMB(rate(), weight_decay=0.5, weight_decay_includes=patterns),
    )
    assert [excluding.decay_of(name) for name in ("net-weight", "net-bias", "a")] == [0.5, 0.0, 0.5]
    assert [including.decay_of(name) for name in ("net-weight", "net-bias", "a")] == [0.0, 0.5, 0.0]
