"""Variables, watches, sessions, placements of job functions."""

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow.compatible.single_client as flow
import oneflow.typing as tp

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = flow.ones_initializer()


# ---------------------------------------------------------------- variables
def test_variables_are_shared_between_train_and_eval():
    lr = flow.optimizer.PiecewiseConstantScheduler([], [1.0])

    def net(x):
        with flow.scope.namespace("net"), flow.scope.namespace("fc"):
            return x * flow.get_variable("w", shape=(1,), initializer=ONE)

    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        loss = net(x)
        flow.optimizer.SGD(lr, momentum=0).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def evaluate(x: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        return net(x)

    one = np.ones(1, np.float32)
    assert evaluate(one)[0] == 1
    assert train(one)[0] == 1 and evaluate(one)[0] == 0 and train(one)[0] == 0 and evaluate(one)[0] == -1
    assert set(flow.get_all_variables()) == {"net-fc-w", "System-Train-TrainStep-train"}


def test_reuse_rules():
    def twice(**second):
        def body():
            a = flow.get_variable("w", shape=(2,), initializer=ONE)
            return a + flow.get_variable("w", **second)

        flow.clear_default_session()
        return job_of(body, [])()

    assert twice(shape=(2,)).tolist() == [2, 2] and twice().tolist() == [2, 2]
    with pytest.raises(ValueError, match="reuse is False"):
        twice(shape=(2,), reuse=False)
    with pytest.raises(ValueError, match=r"has shape \(2,\), asked for \(3,\)"):
        twice(shape=(3,))
    with pytest.raises(ValueError, match="has dtype torch.float32, asked for torch.float64"):
        twice(shape=(2,), dtype=flow.float64)
    with pytest.raises(ValueError, match="does not exist yet; give its shape"):
        job_of(lambda: flow.get_variable("new"), [])()
    with pytest.raises(RuntimeError, match="outside a job function"):
        flow.get_variable("w", shape=(2,))


def test_not_trainable_variables_stay():
    def body():
        a = flow.get_variable("a", shape=(1,), initializer=ONE, trainable=False)
        b = flow.get_variable("b", shape=(1,), initializer=ONE, model_name="weight")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.5]), momentum=0).minimize(a * b)

    job_of(body, [], "train")()
    values = flow.get_all_variables()
    assert values["a"].numpy()[0] == 1 and values["b"].numpy()[0] == 0.5
    assert values["a"].shape == (1,) and values["a"].dtype == flow.float32


def test_defaults_of_the_function_config():
    config = flow.FunctionConfig()
    config.default_data_type(flow.float64)
    config.default_initializer_conf({"constant_conf": {"value": 3.0}})
    config.default_logical_view(flow.scope.mirrored_view())
    config.default_placement_scope(flow.scope.placement("cpu", "0:0"))
    seen = []

    def body():
        seen.append(flow.scope.mirrored_view_enabled())
        return flow.get_variable("w", shape=(2,)), flow.ones((1,))

    w, one = job_of(body, [], config=config)()
    assert w.dtype == np.float64 and w.tolist() == [3, 3] and one.dtype == np.float64 and seen == [True]
    assert not flow.scope.mirrored_view_enabled() and flow.scope.consistent_view_enabled()


def test_assign_takes_effect_when_the_call_ends():
    def body(x):
        w = flow.get_variable("w", shape=(2, 3), initializer=ONE)
        flow.assign(w, w + x)
        return w

    job = job_of(body, [X])
    assert (job(X) == 1).all() and (job(X) == 1 + X).all() and (job(X) == 1 + 2 * X).all()
    with pytest.raises(ValueError, match="what flow.get_variable returned"):
        job_of(lambda x: flow.assign(x, x), [X], name="other")(X)
    with pytest.raises(NotImplementedError, match="legacy-assign-shape"):
        flow.system.assign(None, None, validate_shape=False)


@pytest.mark.parametrize(
    "make, check",
    [
        (lambda: flow.constant_initializer(2), lambda v: (v == 2).all()),
        (lambda: flow.zeros_initializer(), lambda v: (v == 0).all()),
        (lambda: flow.ones_initializer(), lambda v: (v == 1).all()),
        (lambda: flow.empty_initializer(), lambda v: v.shape == (200, 50)),
        (
            lambda: flow.random_uniform_initializer(minval=-2, maxval=3),
            lambda v: v.min() >= -2 and v.max() < 3 and abs(v.mean() - 0.5) < 0.1,
        ),
        (
            lambda: flow.random_normal_initializer(mean=1.0, stddev=2.0),
            lambda v: abs(v.mean() - 1) < 0.1 and abs(v.std() - 2) < 0.1,
        ),
        (
            lambda: flow.truncated_normal_initializer(mean=1.0, stddev=0.5),
            lambda v: v.min() >= 0 and v.max() <= 2 and abs(v.std() - 0.44) < 0.02,
        ),
        (lambda: flow.truncated_normal(0.5), lambda v: abs(v).max() <= 1),
        (
            lambda: flow.variance_scaling_initializer(2.0, "fan_in", "random_normal"),
            lambda v: abs(v.std() - (2 / 50) ** 0.5) < 0.01,
        ),
        (
            lambda: flow.variance_scaling_initializer(1.0, "fan_out", "truncated_normal"),
            lambda v: abs(v.std() - (1 / 200) ** 0.5) < 0.005,
        ),
        (
            lambda: flow.glorot_uniform_initializer(),
            lambda v: abs(v).max() <= (6 / 250) ** 0.5 + 1e-6 and abs(v.std() - (2 / 250) ** 0.5) < 0.005,
        ),
        (lambda: flow.glorot_normal_initializer(), lambda v: abs(v.std() - (2 / 250) ** 0.5) < 0.005),
        (lambda: flow.xavier_uniform_initializer(), lambda v: abs(v.std() - (2 / 250) ** 0.5) < 0.005),
        (lambda: flow.xavier_normal_initializer(), lambda v: abs(v.std() - (2 / 250) ** 0.5) < 0.005),
        (
            lambda: flow.kaiming_initializer((200, 50), mode="fan_in", nonlinearity="relu"),
            lambda v: abs(v.std() - (2 / 50) ** 0.5) < 0.01,
        ),
        (
            lambda: flow.kaiming_initializer((200, 50), "random_uniform", "fan_out", "leaky_relu", 0.5),
            lambda v: abs(v.std() - (2 / 1.25 / 200) ** 0.5) < 0.005,
        ),
    ],
)
def test_initializers(make, check):
    torch.manual_seed(0)
    assert check(job_of(lambda: flow.get_variable("w", shape=(200, 50), initializer=make()), [])())


def test_fans_of_layouts_and_seeds():
    from oneflow.compatible.single_client._functions.initializers import fan

    assert fan((8, 4, 3, 5), "fan_in") == 60 and fan((8, 4, 3, 5), "fan_out", "NCHW") == 120
    assert fan((8, 3, 5, 4), "fan_in", "NHWC") == 60 and fan((8, 3, 5, 4), "fan_out", "NHWC") == 120

    def draw():
        flow.clear_default_session()
        return job_of(
            lambda: flow.get_variable("w", shape=(5,), initializer=flow.random_normal_initializer(seed=7)), []
        )()

    np.testing.assert_array_equal(draw(), draw())

    def whole():
        return job_of(
            lambda: flow.get_variable(
                "i", shape=(50,), dtype=flow.int32, initializer=flow.random_uniform_initializer(2, 5)
            ),
            [],
        )()

    assert set(whole().tolist()) == {2, 3, 4}


# ---------------------------------------------------------------- watch
def test_watch_handlers(capsys):
    got = {}

    def typed(x: tp.Numpy):
        got["typed"] = x

    def listed(x: tp.ListNumpy):
        got["listed"] = x

    def body(x):
        flow.watch(x * 2, lambda b: got.update(plain=b.numpy()))
        flow.watch(x * 3, typed)
        flow.watch(x * 4, listed)
        flow.watch(x, "here it is")
        return x

    job = job_of(body, [X])
    for k in (1, 2):
        job(X * k)
        assert (
            (got["plain"] == 2 * k * X).all()
            and (got["typed"] == 3 * k * X).all()
            and (got["listed"][0] == 4 * k * X).all()
        )
    assert capsys.readouterr().out.count("here it is") == 2


def test_watch_diff_needs_a_loss():
    with pytest.raises(ValueError, match="has no loss"):
        job_of(lambda x: flow.watch_diff(x, print), [X], "train")(X)
    with pytest.raises(ValueError, match="depends on no trainable variable"):
        job_of(lambda x: flow.optimizer.SGD(0.1).minimize(x), [X], "train", name="b")(X)
    with pytest.raises(ValueError, match="has a loss but no optimizer"):
        job_of(
            lambda x: flow.losses.add_loss(x * flow.get_variable("w", shape=(1,))), [X], "train", name="c"
        )(X)


# ---------------------------------------------------------------- sessions, devices, modes
def test_sessions_are_separate():
    job = job_of(lambda: flow.get_variable("w", shape=(1,), initializer=ONE), [])
    assert job()[0] == 1
    flow.clear_default_session()
    assert flow.get_all_variables() == {} and job()[0] == 1  # the old job keeps its own session
    flow.sync_default_session()


def test_load_variables():
    job = job_of(lambda: flow.get_variable("w", shape=(2,), initializer=ONE), [])
    flow.load_variables({"w": np.array([3, 4], np.float32), "unknown": np.zeros(1)})  # before the first call
    assert job().tolist() == [3, 4]
    with pytest.raises(KeyError, match="no variable 'unknown'"):
        flow.load_variables({"unknown": np.zeros(1)}, ignore_mismatch=False)
    with pytest.raises(ValueError, match=r"'w' has shape \(2,\), the value has \(3,\)"):
        flow.load_variables({"w": np.zeros(3, np.float32)}, ignore_mismatch=False)
    flow.load_variables({"w": np.zeros(3, np.float32)})
    assert job().tolist() == [3, 4]


def test_eager_execution_gives_the_same_numbers():
    def body(x):
        w = flow.get_variable("w", shape=(3,), initializer=ONE)
        loss = flow.layers.dense(x * w, 2, kernel_initializer=flow.constant_initializer(0.1), name="fc") ** 2
        flow.optimizer.Adam(flow.optimizer.CosineScheduler(0.1, 10)).minimize(loss)
        return loss

    runs = []
    for eager in (False, True):
        flow.clear_default_session()
        flow.enable_eager_execution(eager)
        assert (
            flow.eager_execution_enabled() is eager and flow.unittest.env.eager_execution_enabled() is eager
        )
        job = job_of(body, [X], "train")
        runs.append([job(X) for _ in range(4)])
        assert job.last.eager is eager
    np.testing.assert_allclose(*runs, rtol=1e-6)


def test_placements(monkeypatch):
    monkeypatch.delenv("ONEFLOW_LEGACY_CPU", raising=False)
    for ids in ("0:0", ["0:0-3"], {0: "0-1"}):
        assert flow.scope.placement("cpu", ids).parallel_num in (1, 2, 4)
    with pytest.raises(ValueError, match='must be "cpu" or "gpu"'):
        flow.scope.placement("tpu", "0:0")
    with pytest.raises(ValueError, match='must look like "0:0-3"'):
        flow.scope.placement("cpu", "zero")
    if torch.cuda.is_available():
        return

    def body(x):
        with flow.scope.placement("gpu", "0:0"):
            return x * flow.get_variable("w", shape=(1,), initializer=ONE)

    with pytest.raises(RuntimeError, match="ONEFLOW_CPU_FOR_CUDA=1"):
        job_of(body, [X])(X)
    monkeypatch.setenv("ONEFLOW_LEGACY_CPU", "1")
    assert (job_of(body, [X])(X) == X).all()
    monkeypatch.delenv("ONEFLOW_LEGACY_CPU")
    flow.config.use_cpu_when_no_gpu()
    config = flow.function_config()
    config.default_placement_scope(flow.scope.placement("gpu", "0:0-3"))
    assert (job_of(lambda x: x * 2, [X], config=config)(X) == 2 * X).all()


def test_scopes_tell_where_they_are():
    def body(x):
        with (
            flow.scope.namespace("a"),
            flow.scope.placement("cpu", "0:0"),
            flow.deprecated.variable_scope("b"),
        ):
            s = flow.current_scope()
            assert (
                s.namespaces == ["a", "b"]
                and s.device_parallel_desc_symbol.device_tag == "cpu"
                and not s.is_mirrored
            )
            with flow.name_scope("c"), flow.experimental.scope.config(pipeline_stage_id_hint=1):
                assert flow.experimental.namescope.GetJobNameScopePrefix("job") == "a-b-c-"
        assert flow.current_global_function_desc().job_name == "job"
        with pytest.raises(ValueError, match="unknown setting"):
            flow.experimental.scope.config(nonsense=1)
        return x

    job_of(body, [X])(X)


def test_amp_computes_in_low_precision():
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)
    seen = []

    def body(x):
        y = flow.matmul(x, x, transpose_b=True)
        seen.append(y.dtype)
        return flow.cast(y, flow.float)

    got = job_of(body, [X], config=config)(X)
    assert seen[0] in (torch.bfloat16, torch.float16)
    np.testing.assert_allclose(got, X @ X.T, rtol=1e-2)


def test_find_or_create_module():
    a = flow.find_or_create_module("m", lambda: object())
    assert flow.find_or_create_module("m", lambda: object(), reuse=True) is a
    with pytest.raises(ValueError, match="exists already"):
        flow.find_or_create_module("m", lambda: object())


def test_a_definition_that_fails_leaves_no_variables_behind():
    """In a notebook: the first version is wrong, the second has another shape."""

    def wrong(x):
        flow.get_variable("w", shape=(7,), initializer=ONE)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        job_of(wrong, [X])(X)
    assert job_of(lambda x: flow.get_variable("w", shape=(2,), initializer=ONE), [X])(X).tolist() == [1, 1]


def test_trainable_is_a_matter_of_each_job():
    """Two trainers over one network, as a GAN has: each moves its own half."""

    def job(name, a_learns):
        def body():
            a = flow.get_variable("a", shape=(1,), initializer=ONE, trainable=a_learns)
            b = flow.get_variable("b", shape=(1,), initializer=ONE, trainable=not a_learns)
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.5]), momentum=0).minimize(
                a * b
            )

        return job_of(body, [], "train", name=name)

    def values():
        return [float(flow.get_all_variables()[n].numpy()[0]) for n in "ab"]

    first, second = job("first", True), job("second", False)
    first()
    assert values() == [0.5, 1.0]
    second()
    assert values() == [0.5, 0.75]
    first()
    assert values() == [0.125, 0.75]
