"""flow.nn.* of job functions against NumPy and torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from legacy_jobs import gradient, result_of_job

import oneflow.compatible.single_client as flow

rng = np.random.default_rng(2)
X = rng.normal(size=(4, 5)).astype(np.float32)
Y = rng.normal(size=(4, 5)).astype(np.float32)
P = rng.uniform(0.05, 0.95, (4, 5)).astype(np.float32)
Q = rng.uniform(0.05, 0.95, (4, 5)).astype(np.float32)
C4 = np.array([1, 0, 4, 2], np.int32)
IMG = rng.normal(size=(2, 4, 7, 6)).astype(np.float32)
T = torch.from_numpy


def sig(x):
    return 1 / (1 + np.exp(-x))


def soft(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES = {
    "relu": (lambda x: flow.nn.relu(x, name="r"), [X], lambda x: np.maximum(x, 0)),
    "relu6": (lambda x: flow.nn.relu6(x), [X * 5], lambda x: np.clip(x, 0, 6)),
    "leaky_relu": (lambda x: flow.nn.leaky_relu(x, alpha=0.3), [X], lambda x: np.where(x > 0, x, 0.3 * x)),
    "leaky_relu-default": (lambda x: flow.nn.leaky_relu(x), [X], lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": (lambda x: flow.nn.elu(x, alpha=0.5), [X], lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
    "hardsigmoid": (lambda x: flow.nn.hardsigmoid(x), [X * 3], lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hardswish": (lambda x: flow.nn.hardswish(x), [X * 3], lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "hardtanh": (
        lambda x: flow.nn.hardtanh(x, min_val=-0.5, max_val=0.7),
        [X],
        lambda x: np.clip(x, -0.5, 0.7),
    ),
    "mish": (lambda x: flow.nn.mish(x), [X], lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "swish": (lambda x: flow.nn.swish(x, beta=1.5), [X], lambda x: x * sig(1.5 * x)),
    "softmax": (lambda x: flow.nn.softmax(x, axis=0), [X], lambda x: soft(x, 0)),
    "logsoftmax": (lambda x: flow.nn.logsoftmax(x), [X], lambda x: np.log(soft(x))),
    "softmax_grad": (
        lambda y, dy: flow.nn.softmax_grad(y, dy, axis=1),
        [P, X],
        lambda y, dy: (dy - (y * dy).sum(1, keepdims=True)) * y,
    ),
    "bias_add": (
        lambda x, b: flow.nn.bias_add(x, b, data_format="NCHW"),
        [IMG, np.arange(4, dtype=np.float32)],
        lambda x, b: x + b[:, None, None],
    ),
    "bias_add-last": (
        lambda x, b: flow.nn.bias_add(x, b, "NHWC"),
        [IMG, np.arange(6, dtype=np.float32)],
        lambda x, b: x + b,
    ),
    "bias_add-2d": (
        lambda x, b: flow.nn.bias_add(x, b),
        [X, np.arange(5, dtype=np.float32)],
        lambda x, b: x + b,
    ),
    "fused_bias_add_gelu": (
        lambda x, b: flow.nn.fused_bias_add_gelu(x, b, data_format="NC"),
        [X, np.arange(5, dtype=np.float32)],
        lambda x, b: F.gelu(T(x + b)).numpy(),
    ),
    "fused_bias_add_dropout-predict": (
        lambda x, b: flow.nn.fused_bias_add_dropout(x, b, rate=0.5),
        [X, np.arange(5, dtype=np.float32)],
        lambda x, b: x + b,
    ),
    "fused_scale_tril": (
        lambda x: flow.nn.fused_scale_tril(x, diagonal=-1, scale=2),
        [X],
        lambda x: np.tril(2 * x, -1),
    ),
    "fused_scale_tril_softmax_dropout": (
        lambda x: flow.nn.fused_scale_tril_softmax_dropout(x, fill_value=-1e4, scale=0.5),
        [X],
        lambda x: soft(np.where(np.tril(np.ones(x.shape)) > 0, x * 0.5, -1e4)),
    ),
    "tril": (lambda x: flow.nn.tril(x, 1), [X], lambda x: np.tril(x, 1)),
    "dropout-predict": (lambda x: flow.nn.dropout(x, rate=0.5), [X], lambda x: x),
    "PixelShuffle": (lambda x: flow.nn.PixelShuffle(x, 2), [IMG], lambda x: F.pixel_shuffle(T(x), 2).numpy()),
    "PixelShufflev2": (
        lambda x: flow.nn.PixelShufflev2(x, 4, 1),
        [IMG],
        lambda x: x.reshape(2, 1, 4, 1, 7, 6).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 28, 6),
    ),
    "moments": (lambda x: flow.nn.moments(x, [0], keepdims=True)[1], [X], lambda x: x.var(0, keepdims=True)),
    "moments-mean": (lambda x: flow.nn.moments(x, [0, 1])[0], [X], lambda x: x.mean()),
    "batch_normalization": (
        lambda x, m, v, o, s: flow.nn.batch_normalization(x, m, v, o, s, 1e-3, axis=1),
        [X, Y[0], P[0], Y[1], Y[2]],
        lambda x, m, v, o, s: (x - m) / np.sqrt(v + 1e-3) * s + o,
    ),
    "layer_norm": (
        lambda x, g, b: flow.nn.layer_norm(
            x, gamma=g, beta=b, begin_norm_axis=1, begin_params_axis=-1, epsilon=1e-3
        ),
        [X, Y[0], Y[1]],
        lambda x, g, b: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3) * g + b,
    ),
    "layer_norm-params-last": (
        lambda x, g: flow.nn.layer_norm(x, gamma=g, begin_norm_axis=1),
        [IMG, Y[0][:1].repeat(6)],
        lambda x, g: (
            (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(x.var((1, 2, 3), keepdims=True) + 1e-5) * g
        ),
    ),
    "GroupNorm": (
        lambda x: flow.nn.GroupNorm(x, num_groups=2, eps=1e-4),
        [IMG],
        lambda x: F.group_norm(T(x), 2, eps=1e-4).numpy(),
    ),
    "InstanceNorm1d": (
        lambda x: flow.nn.InstanceNorm1d(x),
        [IMG[..., 0]],
        lambda x: F.instance_norm(T(x)).numpy(),
    ),
    "InstanceNorm2d": (
        lambda x: flow.nn.InstanceNorm2d(x, affine=False),
        [IMG],
        lambda x: F.instance_norm(T(x)).numpy(),
    ),
    "InstanceNorm3d": (
        lambda x: flow.nn.InstanceNorm3d(x, eps=1e-3),
        [IMG[..., None]],
        lambda x: F.instance_norm(T(x), eps=1e-3).numpy(),
    ),
    "sigmoid_cross_entropy": (
        lambda x, y: flow.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x),
        [X, P],
        lambda x, y: -y * np.log(sig(x)) - (1 - y) * np.log(1 - sig(x)),
    ),
    "softmax_cross_entropy": (
        lambda x, y: flow.nn.softmax_cross_entropy_with_logits(labels=y, logits=x),
        [X, P],
        lambda x, y: -(y * np.log(soft(x))).sum(1),
    ),
    "sparse_softmax_cross_entropy": (
        lambda x, y: flow.nn.sparse_softmax_cross_entropy_with_logits(y, x, name="l"),
        [X, C4],
        lambda x, y: -np.log(soft(x))[np.arange(4), y],
    ),
    "sparse_softmax_cross_entropy-column": (
        lambda x, y: flow.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x),
        [X, C4[:, None]],
        lambda x, y: -np.log(soft(x))[np.arange(4), y[:, 0]],
    ),
    "distributed_sparse": (
        lambda x, y: flow.nn.distributed_sparse_softmax_cross_entropy_with_logits(y, x),
        [X, C4],
        lambda x, y: -np.log(soft(x))[np.arange(4), y],
    ),
    "sparse_cross_entropy": (
        lambda x, y: flow.nn.sparse_cross_entropy(labels=y, prediction=x),
        [P, C4],
        lambda x, y: -np.log(x)[np.arange(4), y],
    ),
    "fused_self_attention": (
        lambda x: flow.nn.fused_self_attention_query_mul_key_and_value(x, head_size=2, alpha=0.5)[0],
        [rng.normal(size=(3, 2, 12)).astype(np.float32)],
        lambda x: (
            0.5
            * np.einsum(
                "sbhd,tbhd->bhst", x.reshape(3, 2, 2, 3, 2)[..., 0, :], x.reshape(3, 2, 2, 3, 2)[..., 1, :]
            )
        ),
    ),
    "fused_self_attention-v": (
        lambda x: flow.nn.fused_self_attention_query_mul_key_and_value(x, 2)[1],
        [rng.normal(size=(3, 2, 12)).astype(np.float32)],
        lambda x: x.reshape(3, 2, 2, 3, 2)[..., 2, :].transpose(1, 2, 0, 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_reference(name):
    function, arrays, reference = CASES[name]
    got, expected = result_of_job(function, *arrays), np.asarray(reference(*arrays))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


LOSSES = {
    "BCELoss": ((P, Q), {}, lambda x, y: -y * np.log(x) - (1 - y) * np.log(1 - x)),
    "BCEWithLogitsLoss": ((X, Q), {}, lambda x, y: -y * np.log(sig(x)) - (1 - y) * np.log(1 - sig(x))),
    "KLDivLoss": ((X, Q), {}, lambda x, y: y * (np.log(y) - x)),
    "L1Loss": ((X, Y), {}, lambda x, y: abs(x - y)),
    "MSELoss": ((X, Y), {}, lambda x, y: (x - y) ** 2),
    "MarginRankingLoss": (
        (X, Y, np.sign(P - 0.5)),
        dict(margin=0.3),
        lambda a, b, t: np.maximum(-t * (a - b) + 0.3, 0),
    ),
    "TripletMarginLoss": (
        (X, Y, P),
        dict(margin=0.5, swap=True),
        lambda a, p, n: F.triplet_margin_loss(
            T(a), T(p), T(n), margin=0.5, swap=True, reduction="none"
        ).numpy(),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_reductions(name):
    arrays, kwargs, reference = LOSSES[name]
    expected = reference(*arrays)
    for reduction, f in (("none", lambda v: v), ("mean", np.mean), ("sum", np.sum)):
        got = result_of_job(
            lambda *b: getattr(flow.nn, name)(*b, reduction=reduction, name="l", **kwargs), *arrays
        )
        np.testing.assert_allclose(got, f(expected), rtol=2e-5, atol=1e-5)
    with pytest.raises(ValueError, match="reduction must be"):
        result_of_job(lambda *b: getattr(flow.nn, name)(*b, reduction="median", **kwargs), *arrays)


def test_ctc_greedy_decoder():
    path = np.array([[1, 0], [1, 2], [0, 2], [1, 2], [3, 0]])  # (time, batch)
    lp = np.full((5, 2, 4), -5.0, np.float32)
    for t in range(5):
        for b in range(2):
            lp[t, b, path[t, b]] = -0.1
    out, score = result_of_job(lambda x, n: flow.nn.ctc_greedy_decoder(x, n), lp, np.array([5, 3], np.int32))
    assert out[0, :3].tolist() == [1, 1, 3] and out[0, 3:].tolist() == [0, 0]
    assert out[1].tolist() == [2, 0, 0, 0, 0]
    np.testing.assert_allclose(score[:, 0], [0.5, 0.3], rtol=1e-5)
    out, _ = result_of_job(
        lambda x, n: flow.nn.ctc_greedy_decoder(x, n, merge_repeated=False), lp, np.array([5, 5], np.int32)
    )
    assert out[1].tolist() == [2, 2, 2, 0, 0]


def test_dropout_in_a_train_job():
    x = np.ones((200, 50), np.float32)
    for kwargs in ({}, dict(seed=3), dict(noise_shape=(200, 1))):
        out, grad = gradient(lambda b: flow.nn.dropout(b, rate=0.4, **kwargs), x)
        kept = out != 0
        np.testing.assert_allclose(out[kept], 1 / 0.6, rtol=1e-6)
        np.testing.assert_allclose(grad, out, rtol=1e-6)
        assert abs(kept.mean() - 0.6) < (0.12 if "noise_shape" in kwargs else 0.03)  # 4 standard deviations
        if "noise_shape" in kwargs:
            assert (kept == kept[:, :1]).all()


def test_seeded_masks_repeat_over_sessions_and_differ_from_call_to_call():
    from legacy_jobs import job_of

    x = np.zeros((30, 30), np.float32)

    def calls():
        flow.clear_default_session()
        job = job_of(lambda b: flow.nn.random_mask_like(b, rate=0.3, seed=11, name="m"), [x])
        return job(x), job(x)

    (a, b), (c, d) = calls(), calls()
    assert a.dtype == np.int8
    np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(b, d)
    assert (a != b).any()


def test_module_and_parameter_are_torchs():
    assert (
        flow.nn.Module is torch.nn.Module
        and flow.nn.parameter.Parameter is torch.nn.Parameter
        and flow.nn.module.Module is torch.nn.Module
    )
    t = torch.empty(3)
    assert flow.nn.init.ones_(t).tolist() == [1, 1, 1] and flow.nn.init.calculate_gain(
        "tanh"
    ) == pytest.approx(5 / 3)
