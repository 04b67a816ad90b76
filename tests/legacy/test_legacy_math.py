"""flow.math.* inside jobs against NumPy, SciPy-free formulas and torch."""

import math

import numpy as np
import pytest
import torch
from legacy_jobs import gradient, result_of_job

import oneflow.compatible.single_client as flow
from oneflow._tables.legacy.math import MATH

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (4, 5)).astype(np.float32)
Y = rng.uniform(-2, 2, (4, 5)).astype(np.float32)
P = rng.uniform(0.1, 2, (4, 5)).astype(np.float32)  # positive
U = rng.uniform(-0.9, 0.9, (4, 5)).astype(np.float32)  # inside (-1, 1)
B = rng.integers(0, 2, (4, 5)).astype(np.int8)
IDS = rng.integers(0, 3, (4,)).astype(np.int32)


def erf(x):
    return np.vectorize(math.erf)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def tril(x, fill=0.0):
    return np.where(np.tril(np.ones(x.shape[-2:])) > 0, x, fill)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def segment_sum(data, ids, n):
    out = np.zeros((n, *data.shape[ids.ndim :]), data.dtype)
    np.add.at(out, ids, data)
    return out


# name: (arrays, call, reference)
CASES = {
    "abs": ([X], None, np.abs),
    "acos": ([U], None, np.arccos),
    "acosh": ([P + 1], None, np.arccosh),
    "asin": ([U], None, np.arcsin),
    "asinh": ([X], None, np.arcsinh),
    "atan": ([X], None, np.arctan),
    "atanh": ([U], None, np.arctanh),
    "ceil": ([X], None, np.ceil),
    "cos": ([X], None, np.cos),
    "cosh": ([X], None, np.cosh),
    "erf": ([X], None, erf),
    "erfc": ([X], None, lambda x: 1 - erf(x)),
    "exp": ([X], None, np.exp),
    "expm1": ([X], None, np.expm1),
    "floor": ([X], None, np.floor),
    "gelu": ([X], None, lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    "lgamma": ([P], None, lambda x: np.vectorize(math.lgamma)(x)),
    "log": ([P], None, np.log),
    "log1p": ([P], None, np.log1p),
    "log_sigmoid": ([X], None, lambda x: np.log(sigmoid(x))),
    "negative": ([X], None, np.negative),
    "reciprocal": ([P], None, lambda x: 1 / x),
    "reciprocal_no_nan": ([np.array([0, 2, -4], np.float32)], None, lambda x: np.array([0, 0.5, -0.25])),
    "relu": ([X], None, lambda x: np.maximum(x, 0)),
    "rint": ([X], None, np.rint),
    "round": ([X], None, np.round),
    "rsqrt": ([P], None, lambda x: 1 / np.sqrt(x)),
    "sigmoid": ([X], None, sigmoid),
    "sigmoid_v2": ([X], None, sigmoid),
    "sign": ([X], None, np.sign),
    "sin": ([X], None, np.sin),
    "sinh": ([X], None, np.sinh),
    "softplus": ([X], None, lambda x: np.log1p(np.exp(x))),
    "sqrt": ([P], None, np.sqrt),
    "square": ([X], None, np.square),
    "tan": ([U], None, np.tan),
    "tanh": ([X], None, np.tanh),
    "tanh_v2": ([X], None, np.tanh),
    "add": ([X, Y], None, np.add),
    "atan2": ([X, Y], None, np.arctan2),
    "divide": ([X, P], None, np.divide),
    "floordiv": ([X, P], None, np.floor_divide),
    "maximum": ([X, Y], None, np.maximum),
    "minimum": ([X, Y], None, np.minimum),
    "mod": ([X, Y], None, np.mod),
    "multiply": ([X, Y], None, np.multiply),
    "pow": ([P, X], None, np.power),
    "squared_difference": ([X, Y], None, lambda x, y: (x - y) ** 2),
    "subtract": ([X, Y], None, np.subtract),
    "xdivy": (
        [np.array([0, 2, 3], np.float32), np.array([0, 4, 2], np.float32)],
        None,
        lambda x, y: np.array([0, 0.5, 1.5]),
    ),
    "xlogy": (
        [np.array([0, 2], np.float32), np.array([0, 3], np.float32)],
        None,
        lambda x, y: np.array([0, 2 * math.log(3)]),
    ),
    "equal": ([X.round(), Y.round()], None, np.equal),
    "not_equal": ([X.round(), Y.round()], None, np.not_equal),
    "less": ([X, Y], None, np.less),
    "less_equal": ([X, Y], None, np.less_equal),
    "greater": ([X, Y], None, np.greater),
    "greater_equal": ([X, Y], None, np.greater_equal),
    "logical_and": ([B, B[::-1].copy()], None, np.logical_and),
    "naive_logical_and": ([B, B[::-1].copy()], None, np.logical_and),
    "reduce_all": ([B], dict(axis=1), lambda x: x.all(1)),
    "reduce_any": ([B], dict(axis=[0], keepdims=True), lambda x: x.any(0, keepdims=True)),
    "reduce_euclidean_norm": ([X], dict(axis=1), lambda x: np.sqrt((x * x).sum(1))),
    "reduce_logsumexp": ([X], dict(axis=[0, 1]), lambda x: np.log(np.exp(x).sum())),
    "reduce_max": ([X], dict(axis=1), lambda x: x.max(1)),
    "reduce_mean": ([X], dict(axis=[0], keepdims=True), lambda x: x.mean(0, keepdims=True)),
    "reduce_min": ([X], dict(axis=-1), lambda x: x.min(1)),
    "reduce_prod": ([X], dict(), lambda x: x.prod()),
    "reduce_std": ([X], dict(axis=1), lambda x: x.std(1)),
    "reduce_sum": ([X], dict(), lambda x: x.sum()),
    "reduce_variance": ([X], dict(axis=0), lambda x: x.var(0)),
    "two_stage_reduce_max": ([X], dict(axis=1), lambda x: x.max(1)),
    "two_stage_reduce_min": ([X], dict(axis=1), lambda x: x.min(1)),
    "reduced_shape_elem_cnt": ([X], dict(axis=1), lambda x: np.array(5)),
    "argmax": ([X], None, lambda x: x.argmax(-1)),
    "clip_by_value": ([X], dict(min_value=-1, max_value=0.5), lambda x: np.clip(x, -1, 0.5)),
    "fused_scale_tril": ([X], dict(fill_value=-3.0, scale=2.0), lambda x: tril(2 * x, -3.0)),
    "fused_scale_tril_softmax_dropout": (
        [X],
        dict(fill_value=-100.0, scale=2.0, rate=0.5),
        lambda x: softmax(tril(2 * x, -100.0)),
    ),
    "in_top_k": (
        [np.array([1, 0, 4, 2], np.int32), X],
        dict(k=2),
        lambda t, p: np.array([(r > r[i]).sum() < 2 for i, r in zip(t, p)]),
    ),
    "l2_normalize": ([X], dict(axis=1, epsilon=1e-10), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
    "sigmoid_grad": ([U, X], None, lambda y, dy: dy * y * (1 - y)),
    "tanh_grad": ([U, X], None, lambda y, dy: dy * (1 - y * y)),
    "top_k": ([X], dict(k=3), lambda x: np.argsort(-x, -1)[:, :3]),
    "tril": ([X], dict(diagonal=0, fill_value=7), lambda x: tril(x, 7)),
    "unsorted_batch_segment_sum": (
        [X, np.array([[0, 1, 0, 2, 1]] * 4, np.int32)],
        dict(num_segments=3),
        lambda x, i: np.stack([segment_sum(a, b, 3) for a, b in zip(x, i)]),
    ),
    "unsorted_segment_sum": ([X, IDS], dict(num_segments=3), lambda x, i: segment_sum(x, i, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name):
    arrays, kwargs, reference = CASES[name]
    got = result_of_job(
        lambda *blobs: getattr(flow.math, name)(*blobs, **(kwargs or {}), name="given"), *arrays
    )
    expected = np.asarray(reference(*[a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]))
    assert got.shape == expected.shape
    if expected.dtype == bool:
        assert got.dtype == np.int8
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


def test_lists_and_likes():
    np.testing.assert_allclose(
        result_of_job(lambda a, b: flow.math.add_n([a, b, a]), X, Y), X + Y + X, rtol=1e-6
    )
    np.testing.assert_allclose(
        result_of_job(lambda a: flow.math.polyval([1.0, 2.0, 3.0], a), X),
        np.polyval([1, 2, 3], X),
        rtol=1e-5,
        atol=1e-6,
    )
    got = result_of_job(lambda a, b: flow.math.broadcast_to_compatible_with(a, [b]), X[:1], Y)
    np.testing.assert_array_equal(got, np.broadcast_to(X[:1], Y.shape))
    got = result_of_job(
        lambda d, i, like: flow.math.unsorted_segment_sum_like(d, i, like),
        X,
        IDS,
        np.zeros((6, 5), np.float32),
    )
    np.testing.assert_allclose(got, segment_sum(X, IDS, 6), rtol=1e-6)


def test_segment_sum_along_an_inner_axis():
    data = rng.normal(size=(2, 4, 3)).astype(np.float32)
    got = result_of_job(lambda d, i: flow.math.unsorted_segment_sum(d, i, num_segments=5, axis=1), data, IDS)
    np.testing.assert_allclose(got, np.stack([segment_sum(d, IDS, 5) for d in data]), rtol=1e-6)


def test_gelu_grad_is_the_gradient_of_gelu():
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.gelu(x).backward(torch.tensor(Y, dtype=torch.float64))
    np.testing.assert_allclose(
        result_of_job(lambda a, d: flow.math.gelu_grad(a, d), X, Y), x.grad, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    "name", ["square", "tanh", "sigmoid", "xdivy", "reduce_variance", "l2_normalize", "reciprocal_no_nan"]
)
def test_gradients(name):
    arrays = {"xdivy": [X, P]}.get(name, [X])
    kwargs = {"reduce_variance": dict(axis=1), "l2_normalize": dict(axis=1)}.get(name, {})
    _, got = gradient(lambda *b: getattr(flow.math, name)(*b, **kwargs), *arrays)
    eps, base = 1e-6, [a.astype(np.float64) for a in arrays]
    reference = (
        CASES[name][2]
        if name not in ("xdivy", "reciprocal_no_nan")
        else {"xdivy": np.divide, "reciprocal_no_nan": lambda x: 1 / x}[name]
    )
    if name == "reduce_variance":
        reference = lambda x: x.var(1)
    expected = np.zeros_like(base[0])
    for i in np.ndindex(*base[0].shape):
        up, down = base[0].copy(), base[0].copy()
        up[i] += eps
        down[i] -= eps
        expected[i] = (np.sum(reference(up, *base[1:])) - np.sum(reference(down, *base[1:]))) / (2 * eps)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_numbers_take_the_dtype_of_the_blob():
    got = result_of_job(lambda a: flow.math.add(a, 2), np.arange(3, dtype=np.int32))
    assert got.dtype == np.int32 and got.tolist() == [2, 3, 4]
    assert result_of_job(lambda a: flow.math.divide(a, 2), np.array([-3, 3], np.int32)).tolist() == [-1, 1]


def test_every_row_has_a_case():
    elsewhere = {"add_n", "polyval", "broadcast_to_compatible_with", "unsorted_segment_sum_like", "gelu_grad"}
    assert set(MATH) == set(CASES) | elsewhere


def test_a_wrong_argument_is_an_error():
    with pytest.raises(TypeError, match="keepdim"):
        result_of_job(lambda a: flow.math.reduce_sum(a, keepdim=True), X)
    with pytest.raises(ValueError, match="axis 5 is out of range"):
        result_of_job(lambda a: flow.math.reduce_sum(a, axis=5), X)
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        result_of_job(lambda a: flow.math.top_k(a, axis=2), X)


def test_floordiv_has_the_gradient_zero():
    out, got = gradient(lambda a, b: flow.math.floordiv(a, b), X, P)
    assert np.array_equal(out, np.floor_divide(X, P)) and not got.any()


def test_elements_of_a_comparison_count():
    assert result_of_job(lambda a: flow.math.reduce_sum(a == a), X) == X.size


def test_no_axes_reduce_nothing():
    x = np.array([[0, -2], [3, 0]], np.float32)
    for name, expected in dict(
        reduce_sum=x,
        reduce_max=x,
        reduce_logsumexp=x,
        reduce_variance=0 * x,
        reduce_std=0 * x,
        reduce_any=x != 0,
        reduce_all=x != 0,
        reduce_euclidean_norm=abs(x),
    ).items():
        flow.clear_default_session()
        np.testing.assert_array_equal(
            result_of_job(lambda b: getattr(flow.math, name)(b, axis=[]), x), expected, err_msg=name
        )
