"""flow.layers.* against torch with the same weights, and the names of their variables."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from legacy_jobs import gradient, job_of, result_of_job

import oneflow.compatible.single_client as flow

rng = np.random.default_rng(5)
IMG = rng.normal(size=(2, 4, 6, 5)).astype(np.float32)
T = torch.from_numpy
INIT = dict(
    kernel_initializer=flow.random_normal_initializer(stddev=0.3),
    bias_initializer=flow.random_normal_initializer(),
)


def values():
    return {n: T(v.numpy()) for n, v in flow.get_all_variables().items()}


def test_dense():
    x = rng.normal(size=(2, 3, 5)).astype(np.float32)
    with_names = result_of_job(
        lambda b: flow.layers.dense(b, 4, activation=flow.nn.relu, name="fc1", **INIT), x
    )
    v = values()
    assert {n: tuple(t.shape) for n, t in v.items()} == {"fc1-weight": (4, 5), "fc1-bias": (4,)}
    np.testing.assert_allclose(
        with_names, F.relu(F.linear(T(x), v["fc1-weight"], v["fc1-bias"])), rtol=1e-5, atol=1e-6
    )
    flow.clear_default_session()
    assert result_of_job(
        lambda b: flow.layers.dense(b, 4, use_bias=False, kernel_initializer=flow.ones_initializer()), x[:, 0]
    ).shape == (2, 4)
    assert set(values()) == {"Dense-weight"}
    with pytest.raises(ValueError, match="reuse is False"):
        job_of(lambda b: flow.layers.dense(flow.layers.dense(b, 4), 4), [x[:, 0]], name="twice")(x[:, 0])


@pytest.mark.parametrize(
    "n, data_format", [(1, "NCW"), (1, "NWC"), (2, "NCHW"), (2, "NHWC"), (3, "NCDHW"), (3, "NDHWC")]
)
def test_conv(n, data_format):
    last = data_format.endswith("C")
    x = rng.normal(size=(2, 4, *(7, 6, 5)[:n])).astype(np.float32)
    layer = getattr(flow.layers, f"conv{n}d")
    laid_out = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    got = result_of_job(
        lambda b: layer(
            b,
            6,
            kernel_size=3,
            strides=2,
            padding="SAME_UPPER",
            data_format=data_format,
            groups=2,
            name="c",
            **INIT,
        ),
        laid_out,
    )
    v = values()
    w = v["c-weight"].movedim(-1, 1) if last else v["c-weight"]
    assert w.shape == (6, 2, *[3] * n)
    pads = []
    for size in reversed(x.shape[2:]):
        total = max(0, (-(-size // 2) - 1) * 2 + 3 - size)
        pads += [total // 2, total - total // 2]
    expected = (F.conv1d, F.conv2d, F.conv3d)[n - 1](
        F.pad(T(x), pads), w, v["c-bias"], stride=2, groups=2
    ).numpy()
    np.testing.assert_allclose(np.moveaxis(got, -1, 1) if last else got, expected, rtol=1e-4, atol=1e-5)


def test_conv2d_names_and_errors():
    result_of_job(lambda b: flow.layers.conv2d(b, 2, weight_name="w1", bias_name="b1", name="ignored"), IMG)
    assert set(values()) == {"w1", "b1"}
    with pytest.raises(ValueError, match="multiples of groups=3"):
        job_of(lambda b: flow.layers.conv2d(b, 2, groups=3), [IMG], name="other")(IMG)
    with pytest.raises(ValueError, match="data_format must be one of NCHW, NHWC"):
        job_of(lambda b: flow.layers.conv2d(b, 2, data_format="NCW"), [IMG], name="third")(IMG)


@pytest.mark.parametrize("axis", [1, -1])
def test_batch_normalization_trains_and_evaluates(axis):
    def net(x):
        return flow.layers.batch_normalization(x, axis=axis, momentum=0.9, epsilon=1e-3, name="bn")

    def train_body(x):
        y = net(x)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0]), momentum=0).minimize(y)
        return y

    laid_out = IMG if axis == 1 else np.ascontiguousarray(np.moveaxis(IMG, 1, -1))
    back = (lambda a: a) if axis == 1 else (lambda a: np.moveaxis(a, -1, 1))
    train, evaluate = (
        job_of(train_body, [laid_out], "train", name="train"),
        job_of(net, [laid_out], name="eval"),
    )
    np.testing.assert_allclose(back(evaluate(laid_out)), IMG / np.sqrt(1 + 1e-3), rtol=1e-5)
    bn = torch.nn.BatchNorm2d(4, eps=1e-3, momentum=0.1)
    for _ in range(3):
        np.testing.assert_allclose(back(train(laid_out)), bn(T(IMG)).detach(), rtol=1e-4, atol=1e-5)
    v = values()
    assert {"bn-gamma", "bn-beta", "bn-moving_mean", "bn-moving_variance"} <= set(v)
    torch.testing.assert_close(v["bn-moving_mean"], bn.running_mean)
    torch.testing.assert_close(v["bn-moving_variance"], bn.running_var)
    np.testing.assert_allclose(back(evaluate(laid_out)), bn.eval()(T(IMG)).detach(), rtol=1e-4, atol=1e-5)


def test_batch_normalization_before_the_first_call_keeps_its_moving_values():
    def body(x):
        y = flow.layers.batch_normalization(x, axis=1, name="bn")
        flow.optimizer.SGD(0.0).minimize(y)

    job_of(body, [IMG], "train")
    flow.train.CheckPoint().init()
    assert (
        values()["bn-moving_mean"].tolist() == [0] * 4 and values()["bn-moving_variance"].tolist() == [1] * 4
    )


def test_fused_batch_normalizations():
    got = result_of_job(
        lambda x, a: flow.layers.batch_normalization_add_relu(x, a, axis=1, name="b1", gamma_name="g"),
        IMG,
        IMG[::-1].copy(),
    )
    np.testing.assert_allclose(got, np.maximum(IMG / np.sqrt(1.001) + IMG[::-1], 0), rtol=1e-4, atol=1e-5)
    assert "b1-g" in values()
    got = job_of(
        lambda x: flow.layers.batch_normalization_relu(x, axis=1, center=False, scale=False, name="b2"),
        [IMG],
        name="two",
    )(IMG)
    np.testing.assert_allclose(got, np.maximum(IMG / np.sqrt(1.001), 0), rtol=1e-4, atol=1e-5)
    assert "b2-gamma" not in values()


def test_layer_norm_and_its_gradients():
    got = result_of_job(
        lambda x: flow.layers.layer_norm(x, begin_norm_axis=1, begin_params_axis=1, epsilon=1e-3, name="ln"),
        IMG,
    )
    np.testing.assert_allclose(got, F.layer_norm(T(IMG), IMG.shape[1:], eps=1e-3), rtol=1e-4, atol=1e-5)
    assert values()["ln-gamma"].shape == IMG.shape[1:]
    x = torch.tensor(IMG, dtype=torch.float64, requires_grad=True)
    dy = rng.normal(size=IMG.shape).astype(np.float32)
    y = F.layer_norm(x, IMG.shape[1:])
    y.backward(T(dy).double())
    mean, inv = IMG.mean((1, 2, 3)), 1 / np.sqrt(IMG.var((1, 2, 3)) + 1e-5)
    got = job_of(
        lambda *b: flow.layers.layer_norm_grad(*b, begin_norm_axis=1), [dy, IMG, mean, inv], name="g"
    )(dy, IMG, mean, inv)
    np.testing.assert_allclose(got, x.grad, rtol=1e-3, atol=1e-5)
    gamma = rng.normal(size=5).astype(np.float32)
    a, b, c = job_of(
        lambda *t: flow.layers.layer_norm_param_grad(*t, begin_params_axis=-1), [dy, IMG, gamma], name="p"
    )(dy, IMG, gamma)
    np.testing.assert_allclose(a, dy * gamma, rtol=1e-6)
    np.testing.assert_allclose(b, dy.sum((0, 1, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c, (dy * IMG).sum((0, 1, 2)), rtol=1e-4, atol=1e-5)


def test_prelu():
    out, grad = gradient(
        lambda x: flow.layers.prelu(
            x, alpha_initializer=flow.constant_initializer(0.25), shared_axes=(2, 3), name="pr"
        ),
        IMG,
    )
    np.testing.assert_allclose(out, np.where(IMG > 0, IMG, 0.25 * IMG), rtol=1e-6)
    np.testing.assert_allclose(grad, np.where(IMG > 0, 1, 0.25), rtol=1e-6)
    assert values()["pr-alpha"].shape == (4, 1, 1)
    with pytest.raises(ValueError, match="shared axis 4"):
        job_of(lambda x: flow.layers.prelu(x, shared_axes=(4,)), [IMG], name="bad")(IMG)


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(),
        dict(size=(3, 1)),
        dict(size=2, interpolation="bilinear"),
        dict(interpolation="bilinear", align_corners=True),
    ],
)
def test_upsample_2d(kwargs):
    size = kwargs.get("size", (2, 2))
    h, w = (size, size) if isinstance(size, int) else size
    mode = kwargs.get("interpolation", "nearest")
    expected = F.interpolate(
        T(IMG),
        size=(6 * h, 5 * w),
        mode=mode,
        align_corners=kwargs.get("align_corners", False) if mode == "bilinear" else None,
    )
    np.testing.assert_allclose(
        result_of_job(lambda x: flow.layers.upsample_2d(x, **kwargs), IMG), expected, rtol=1e-5, atol=1e-6
    )
    got = result_of_job(
        lambda x: flow.layers.upsample_2d(x, data_format="NHWC", **kwargs), IMG.transpose(0, 2, 3, 1).copy()
    )
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), expected, rtol=1e-5, atol=1e-6)


def test_upsample_2d_errors():
    with pytest.raises(ValueError, match="interpolation must be"):
        result_of_job(lambda x: flow.layers.upsample_2d(x, interpolation="cubic"), IMG)
    with pytest.raises(ValueError, match="bilinear interpolation only"):
        result_of_job(lambda x: flow.layers.upsample_2d(x, align_corners=True), IMG)
