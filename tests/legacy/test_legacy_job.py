"""Job functions: annotations, inputs, results, one run of the body."""

import importlib
from typing import Dict, List, Tuple

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow
import oneflow.compatible.single_client as flow
import oneflow.typing as tp

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = flow.ones_initializer()


# ---------------------------------------------------------------- results
def test_return_annotations():
    P = tp.Numpy.Placeholder((2, 3))

    @flow.global_function()
    def single(x: P) -> tp.Numpy:
        return x + 1

    @flow.global_function()
    def pair(x: P) -> Tuple[tp.Numpy, tp.Numpy]:
        return x, x * 2

    @flow.global_function()
    def many(x: P) -> Tuple[tp.Numpy, ...]:
        return x, x * 2, x * 3

    @flow.global_function()
    def listed(x: P) -> List[tp.Numpy]:
        return [x, x * 2]

    @flow.global_function()
    def named(x: P) -> Dict[str, tp.Numpy]:
        return {"a": x, "b": x * 2}

    @flow.global_function()
    def per_device(x: P) -> tp.ListNumpy:
        return x * 2

    @flow.global_function()
    def bundle(x: P) -> tp.Bundle[tp.Numpy]:
        return {"a": [x, (x * 2,)]}

    @flow.global_function()
    def later(x: P) -> tp.Callback[Tuple[tp.Numpy, tp.Numpy]]:
        return x, x * 2

    @flow.global_function()
    def nothing(x: P) -> None:
        x + 1

    assert isinstance(single(X), np.ndarray) and (single(X) == X + 1).all()
    assert isinstance(pair(X), tuple) and (pair(X)[1] == 2 * X).all()
    assert len(many(X)) == 3 and (listed(X)[1] == 2 * X).all() and (named(X)["b"] == 2 * X).all()
    assert isinstance(per_device(X), list) and (per_device(X)[0] == 2 * X).all()
    assert (bundle(X)["a"][1][0] == 2 * X).all()
    got = []
    assert later(X)(lambda r: got.append(r)) is None and (got[0][1] == 2 * X).all()
    assert nothing(X) is None


def test_the_old_get_and_async_get():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        return x, {"twice": x * 2}

    blob, named = job(X).get()
    assert (blob.numpy() == X).all() and blob.shape == (2, 3) and blob.dtype == np.float32
    assert (named["twice"].numpy_list()[0] == 2 * X).all() and (named["twice"].ndarray() == 2 * X).all()
    assert (
        f"{blob.sum():.1f}" == "15.0"
        and int(blob[0, 1]) == 1
        and 5 in blob
        and (abs(-blob) == X).all()
        and (2**blob == 2**X).all()
    )
    assert (
        (np.asarray(blob) == X).all()
        and (blob + 1 == X + 1).all()
        and blob.mean() == X.mean()
        and len(blob) == 2
    )
    got = []
    job(X).async_get(lambda r: got.append(r[0].numpy()))
    assert (got[0] == X).all()


@pytest.mark.parametrize("annotation", [int, np.ndarray, Tuple[int, tp.Numpy], Dict[int, tp.Numpy]])
def test_other_return_annotations_are_refused(annotation):
    def job(x: tp.Numpy.Placeholder((2,))):
        return x

    job.__annotations__["return"] = annotation
    with pytest.raises(TypeError, match="allowed are numpy results"):
        flow.global_function()(job)


def test_other_results_are_refused():
    with pytest.raises(TypeError, match=r"the result\[1\] of the job function is a str; a job returns blobs"):
        job_of(lambda x: (x, "text"), [X])(X)

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> Tuple[tp.Numpy, tp.Numpy]:
        return x, x, x

    with pytest.raises(TypeError, match="annotated 2 results, it returned 3"):
        job(X)


# ---------------------------------------------------------------- inputs
def test_inputs_are_checked_by_name():
    @flow.global_function()
    def job(
        images: tp.Numpy.Placeholder((2, 3)), labels: tp.Numpy.Placeholder((2,), dtype=flow.int32)
    ) -> tp.Numpy:
        return images

    labels = np.zeros(2, np.int32)
    with pytest.raises(
        ValueError,
        match=r"job\(\): argument 'images': declared shape \(2, 3\), got an array of shape \(3, 2\)",
    ):
        job(X.T.copy(), labels)
    with pytest.raises(TypeError, match=r"'labels': declared dtype torch.int32, got an array of float32"):
        job(X, labels.astype(np.float32))
    assert job(X.astype(np.float64), labels.astype(np.int64)).dtype == np.float32
    with pytest.raises(
        ValueError,
        match=(
            r"'labels': declared dtype torch.int32, got int64 numbers from 0 to 1099511627776, which do"
            r" not all fit it"
        ),
    ):
        job(X, np.array([2**40, 0]))
    with pytest.raises(TypeError, match=r"function_config=.*found 3"):
        flow.global_function(function_config=3)
    with pytest.raises(TypeError, match=r"'images'.*got list"):
        job(X.tolist(), labels)
    with pytest.raises(TypeError, match=r"takes 2 arguments \(images, labels\), got 1"):
        job(X)
    assert (job(images=X, labels=labels) == X).all() and (job(X.T.copy().T, labels) == X).all()


def test_list_inputs_may_be_shorter():
    seen = []

    @flow.global_function()
    def job(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        seen.append(x.is_dynamic)
        return flow.math.reduce_sum(x, axis=[0])

    for n in (4, 2, 4):
        (got,) = job([np.ones((n, 3), np.float32)])
        assert got.tolist() == [n] * 3
    assert seen == [True, True]  # one capture per shape
    # as many elements as declared, in another shape
    assert job([np.ones((2, 6), np.float32)])[0].tolist() == [2] * 6
    with pytest.raises(ValueError, match=r"at most the elements of \(4, 3\)"):
        job([np.ones((5, 3), np.float32)])
    with pytest.raises(NotImplementedError, match="legacy-one-device"):
        job([X[:, :3], X[:, :3]])


def test_lists_of_arrays_of_different_sizes():
    @flow.global_function()
    def job(
        xs: tp.ListListNumpy.Placeholder((3, 4, 5)), mean: tp.Numpy.Placeholder((1,))
    ) -> Tuple[tp.ListListNumpy, tp.ListNumpy, tp.ListListNumpy]:
        buffer = flow.image_normalize(flow.tensor_list_to_tensor_buffer(xs), std=[2.0], mean=[0.0])
        first, *_ = flow.tensor_list_split(xs)
        return flow.tensor_buffer_to_tensor_list(buffer, shape=(4, 5), dtype=flow.float), first - mean, xs

    arrays = [np.full((1, i + 2, 5), i, np.float32) for i in range(3)]
    for n in (3, 2, 3):
        (halves,), (first,), (same,) = job([arrays[:n]], np.ones(1, np.float32))
        assert [h.shape for h in halves] == [(1, i + 2, 5) for i in range(n)]
        assert (
            all((h == i / 2).all() for i, h in enumerate(halves))
            and (first == -1).all()
            and first.shape == (2, 5)
        )
        assert all(np.array_equal(a, b) for a, b in zip(same, arrays))
    with pytest.raises(ValueError, match="at most 3 arrays"):
        job([arrays * 2], np.ones(1, np.float32))
    with pytest.raises(ValueError, match=r"at most \(1, 4, 5\), got one of shape \(1, 5, 5\)"):
        job([[np.zeros((1, 5, 5), np.float32)]], np.ones(1, np.float32))
    with pytest.raises(NotImplementedError, match="legacy-one-device"):
        job([arrays, arrays], np.ones(1, np.float32))


def test_nested_and_missing_declarations():
    @flow.global_function()
    def job(
        pair: Tuple[tp.Numpy.Placeholder((2, 3)), tp.Numpy.Placeholder((2, 3))],
        named={"a": flow.FixedTensorDef((2, 3))},
    ) -> tp.Numpy:
        return pair[0] - pair[1] + named["a"]

    assert (job((X, X), {"a": X}) == X).all()
    with pytest.raises(TypeError, match="parameter 'y' declares no input"):

        @flow.global_function()
        def wrong(y):
            return y


def test_the_body_runs_once_and_sees_shapes_and_dtypes():
    runs = []

    def body(x):
        runs.append((tuple(x.shape), x.dtype, x.logical_blob_name, x.op_name))
        return (x * 2).with_distribute(flow.distribute.split(0))

    job = job_of(body, [X])
    for k in range(3):
        assert (job(X + k) == 2 * (X + k)).all()
    assert runs == [((2, 3), flow.float32, "Input_0/out", "Input_0")]
    assert not job.last.eager


def test_results_do_not_share_memory_with_inputs_or_variables():
    def body(x):
        w = flow.get_variable("w", shape=(2, 3), initializer=ONE)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [6.0]), momentum=0).minimize(w * x)
        return x, w, w.reshape(-1), x[0]

    job = job_of(body, [X], "train")
    x = np.ones((2, 3), np.float32)
    first = job(x)
    second = job(x)
    # before the update, kept
    assert (first[1] == 1).all() and np.allclose(second[1], 0, atol=1e-6) and (first[2] == 1).all()
    first[0][:] = 7
    first[3][:] = 7
    assert (x == 1).all()


def test_modern_modules_work_inside_a_job():
    m = oneflow.nn.Linear(3, 2)
    assert (job_of(lambda x: m(x), [X])(X) == m(torch.from_numpy(X)).detach().numpy()).all()


def test_a_second_call_runs_no_python_of_the_user():
    runs = []

    def body(x):
        runs.append(1)
        return x * 2

    job = job_of(body, [X])
    job(X)
    captured = len(runs)
    job(X)
    assert captured and len(runs) == captured


def test_no_symbolic_tensor_outlives_the_capture():
    from torch._subclasses.fake_tensor import FakeTensor

    def body(x, lr):
        w = flow.get_variable("w", shape=(3,), initializer=ONE)
        y = flow.pack(flow.unpack(x * w, 2), 2)
        flow.watch(y, lambda v: None)
        flow.watch_diff(y, lambda v: None)
        flow.optimizer.SGD(flow.optimizer.CustomScheduler(lr.logical_blob_name)).minimize(y)
        return y

    job = job_of(body, [X, X[0, :1]], "train")
    job(X, X[0, :1])
    kept = [
        t
        for o in (job.last.trace, *job.last.trace.updates)
        for v in vars(o).values()
        for t in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else [v])
    ]
    assert len(kept) > 10 and not any(isinstance(t, FakeTensor) for t in kept)


def test_a_variable_created_by_capture_is_an_ordinary_tensor():
    job = job_of(lambda: flow.get_variable("w", shape=(3,), initializer=ONE), [])
    job()
    (variable,) = job.session.variables.values()
    assert type(variable.tensor) is torch.Tensor and variable.tensor.is_leaf and variable.tensor.requires_grad


def test_the_program_can_be_read():
    def body(x):
        loss = flow.layers.dense(x, 2, name="fc")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(loss)

    job = job_of(body, [X], "train")
    assert job.program is None
    flow.get_all_variables()
    text = str(job.program)
    assert "fc_weight" in text and "addmm" in text and "updated" in text
    flow.enable_eager_execution()
    eager = job_of(lambda x: x, [X], name="eager")
    eager(X)
    assert eager.program is None


def test_names_that_the_generated_code_uses_itself():
    @flow.global_function()
    def job(abs: tp.Numpy.Placeholder((2,)), f0: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return flow.math.relu(flow.get_variable("in", (2,), initializer=flow.ones_initializer()) - f0) + abs

    assert np.array_equal(job(np.zeros(2, np.float32), np.array([0, 3], np.float32)), [1, 0])


def test_a_config_in_the_place_of_the_type():
    config = flow.function_config()

    @flow.global_function(config)
    def predict(x=flow.FixedTensorDef((2,), dtype=flow.float32)):
        assert not flow.current_global_function_desc().IsTrainable()
        return flow.math.relu(x)

    assert np.array_equal(predict(np.array([-1, 2], np.float32)).get().numpy(), [0, 2])
    config = flow.function_config()
    config.train.primary_lr(0.5)
    config.train.model_update_conf({"naive_conf": {}})

    @flow.global_function(config)
    def train():
        assert flow.current_global_function_desc().IsTrainable()
        v = flow.get_variable("v", (2,), initializer=flow.ones_initializer())
        flow.losses.add_loss(v)
        return v

    train()
    assert np.array_equal(train().get().numpy(), [0.75, 0.75])


def test_blobs_have_values_in_a_job_that_runs_op_by_op():
    flow.enable_eager_execution()
    seen = []

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))):
        seen.append((x * 2).numpy(0))
        seen.extend((x * 3).numpy_list())

    job(np.array([1, 2], np.float32))
    assert [list(a) for a in seen] == [[2, 4], [3, 6]]


def test_a_refused_job_function_leaves_nothing_behind():
    with pytest.raises(TypeError, match="declares no input"):

        @flow.global_function()
        def job(x):
            return x

    assert flow.get_all_variables() == {}


def test_each_test_case_has_a_fresh_session():
    for name in ("oneflow.unittest", "oneflow.compatible.single_client.unittest"):

        @flow.global_function()
        def job() -> tp.Numpy:
            return flow.get_variable("v", (1,))

        job()
        assert "v" in flow.get_all_variables()
        importlib.import_module(name).TestCase("run").setUp()
        assert not flow.get_all_variables()
