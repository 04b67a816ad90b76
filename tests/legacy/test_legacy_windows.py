"""Convolution and pooling of job functions against NumPy and torch: paddings, layouts, dilations."""

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


def conv_reference(x, w, stride, pads, dilation=1, groups=1):
    """Direct NHWC-free convolution in float64 loops over kernel positions."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    n, c, h, wd = x.shape
    o, ci, kh, kw = w.shape
    oh, ow = (h - (kh - 1) * dilation - 1) // stride + 1, (wd - (kw - 1) * dilation - 1) // stride + 1
    out = np.zeros((n, o, oh, ow))
    per = o // groups
    for g in range(groups):
        xs = x[:, g * ci : (g + 1) * ci]
        for i in range(kh):
            for j in range(kw):
                part = xs[
                    :,
                    :,
                    i * dilation : i * dilation + oh * stride : stride,
                    j * dilation : j * dilation + ow * stride : stride,
                ][:, :, :oh, :ow]
                out[:, g * per : (g + 1) * per] += np.einsum(
                    "nchw,oc->nohw", part, w[g * per : (g + 1) * per, :, i, j].astype(np.float64)
                )
    return out


W = rng.normal(size=(6, 4, 3, 2)).astype(np.float32)


@pytest.mark.parametrize(
    "padding, pads",
    [
        ("VALID", [(0, 0), (0, 0)]),
        ("SAME", [(1, 1), (1, 0)]),
        ("SAME_LOWER", [(1, 1), (1, 0)]),
        ("SAME_UPPER", [(1, 1), (0, 1)]),
        (1, [(1, 1), (1, 1)]),
        ([2, 1], [(2, 2), (1, 1)]),
        ([(0, 1), (2, 0)], [(0, 1), (2, 0)]),
        ([0, 0, (1, 2), 1], [(1, 2), (1, 1)]),
    ],
)
def test_conv2d_paddings_and_layouts(padding, pads):
    expected = conv_reference(IMG, W, 1, pads)
    np.testing.assert_allclose(
        result_of_job(lambda x, w: flow.nn.conv2d(x, w, strides=1, padding=padding), IMG, W),
        expected,
        rtol=1e-4,
        atol=1e-4,
    )
    last = [0, *padding[2:], 0] if isinstance(padding, list) and len(padding) == 4 else padding
    got = result_of_job(
        lambda x, w: flow.nn.conv2d(x, w, strides=[1, 1], padding=last, data_format="NHWC"),
        np.ascontiguousarray(IMG.transpose(0, 2, 3, 1)),
        np.ascontiguousarray(W.transpose(0, 2, 3, 1)),
    )
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-4)


def test_conv2d_groups_strides_dilations():
    w = np.ascontiguousarray(W[:, :2])
    got = result_of_job(
        lambda x, w: flow.nn.conv2d(x, w, strides=2, padding=1, dilations=2, groups=2), IMG, w
    )
    np.testing.assert_allclose(got, conv_reference(IMG, w, 2, [(1, 1), (1, 1)], 2, 2), rtol=1e-4, atol=1e-4)
    got = result_of_job(lambda x, w: flow.nn.compat_conv2d(x, w, strides=2, padding="SAME", groups=2), IMG, w)
    np.testing.assert_allclose(got, conv_reference(IMG, w, 2, [(1, 1), (0, 0)], 1, 2), rtol=1e-4, atol=1e-4)
    # the odd one last, first
    for function, pads in (
        (flow.nn.compat_conv2d, (0, 1)),
        (flow.nn.conv2d, (1, 0)),
    ):
        got = result_of_job(
            lambda x, w: function(x, w, strides=1, padding="SAME"), IMG, W[:, :, :2, :2].copy()
        )
        np.testing.assert_allclose(
            got, conv_reference(IMG, W[:, :, :2, :2], 1, [pads, pads]), rtol=1e-4, atol=1e-4
        )
    bias = np.arange(6, dtype=np.float32)
    got = result_of_job(lambda x, w, b: flow.nn.conv2d(x, w, 1, "VALID", bias=b), IMG, W, bias)
    np.testing.assert_allclose(
        got, conv_reference(IMG, W, 1, [(0, 0)] * 2) + bias[:, None, None], rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="do not fit filters"):
        result_of_job(lambda x, w: flow.nn.conv2d(x, w, 1, "VALID", groups=2), IMG, W)


def test_conv1d_conv3d():
    x, w = IMG[..., 0].copy(), W[..., 0].copy()
    got = result_of_job(lambda x, w: flow.nn.conv1d(x, w, strides=2, padding="SAME"), x, w)
    np.testing.assert_allclose(got, F.conv1d(T(x), T(w), stride=2, padding=1), rtol=1e-4, atol=1e-5)
    x, w = (
        rng.normal(size=(1, 2, 4, 5, 3)).astype(np.float32),
        rng.normal(size=(3, 2, 2, 3, 1)).astype(np.float32),
    )
    got = result_of_job(
        lambda x, w: flow.nn.conv3d(x, w, 1, "VALID", data_format="NDHWC"),
        x.transpose(0, 2, 3, 4, 1).copy(),
        w.transpose(0, 2, 3, 4, 1).copy(),
    )
    np.testing.assert_allclose(got.transpose(0, 4, 1, 2, 3), F.conv3d(T(x), T(w)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "padding, size", [("SAME", (13, 12)), ("SAME", (14, 11)), ("SAME_UPPER", (13, 12)), ("VALID", (15, 12))]
)
def test_conv2d_transpose_is_the_gradient_of_conv2d(padding, size):
    w = rng.normal(size=(4, 3, 3, 2)).astype(np.float32)
    got = result_of_job(
        lambda x, w: flow.nn.conv2d_transpose(x, w, output_shape=(2, 3, *size), strides=2, padding=padding),
        IMG,
        w,
    )
    out, grad = gradient(
        lambda x, w: flow.nn.conv2d(x, w, strides=2, padding=padding) * torch.from_numpy(IMG),
        np.zeros((2, 3, *size), np.float32),
        w,
    )
    assert out.shape == IMG.shape
    np.testing.assert_allclose(got, grad, rtol=1e-4, atol=1e-4)


def test_conv2d_transpose_refuses_an_impossible_shape():
    w = np.zeros((4, 3, 3, 2), np.float32)
    with pytest.raises(ValueError, match="does not fit input"):
        result_of_job(
            lambda x, w: flow.nn.conv2d_transpose(
                x, w, output_shape=(2, 3, 30, 30), strides=2, padding="VALID"
            ),
            IMG,
            w,
        )


def test_torch_conv2d_transpose():
    w = rng.normal(size=(4, 3, 3, 2)).astype(np.float32)
    got = result_of_job(
        lambda x, w: flow.nn.torch_conv2d_transpose(
            x, w, output_padding=(1, 0), strides=2, padding_needed=(2, 0)
        ),
        IMG,
        w,
    )
    np.testing.assert_allclose(
        got,
        F.conv_transpose2d(T(IMG), T(w), stride=2, padding=(1, 0), output_padding=(1, 0)),
        rtol=1e-4,
        atol=1e-5,
    )


def pool_reference(x, k, s, pads, how):
    n, c, h, w = x.shape
    value = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=-np.inf if how == "max" else np.nan)
    H, Wd = value.shape[2:]
    oh, ow = (H - k) // s + 1, (Wd - k) // s + 1
    f = np.max if how == "max" else np.nanmean
    return np.stack(
        [
            np.stack(
                [f(value[:, :, i * s : i * s + k, j * s : j * s + k], axis=(2, 3)) for j in range(ow)], -1
            )
            for i in range(oh)
        ],
        -2,
    )


@pytest.mark.parametrize("how", ["max", "avg"])
@pytest.mark.parametrize(
    "k, s, padding, pads",
    [
        (2, 2, "VALID", [(0, 0)] * 2),
        (3, 2, "SAME", [(1, 1), (1, 0)]),
        (2, 1, "SAME", [(1, 0), (1, 0)]),
        (2, 1, "SAME_UPPER", [(0, 1), (0, 1)]),
        (3, 1, [[0, 0], [0, 0], [1, 1], [1, 1]], [(1, 1), (1, 1)]),
    ],
)
def test_pool2d(how, k, s, padding, pads):
    function = getattr(flow.nn, f"{how}_pool2d")
    expected = pool_reference(IMG, k, s, pads, how)
    np.testing.assert_allclose(
        result_of_job(lambda x: function(x, ksize=k, strides=s, padding=padding, name="p"), IMG),
        expected,
        rtol=1e-5,
        atol=1e-6,
    )
    last = [padding[0], *padding[2:], padding[1]] if isinstance(padding, list) else padding
    got = result_of_job(
        lambda x: function(x, [k, k], [s, s], last, data_format="NHWC"), IMG.transpose(0, 2, 3, 1).copy()
    )
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), expected, rtol=1e-5, atol=1e-6)


def test_pool_ceil_mode_and_other_dimensions():
    got = result_of_job(lambda x: flow.nn.max_pool2d(x, 2, 2, "VALID", ceil_mode=True), IMG)
    np.testing.assert_allclose(got, F.max_pool2d(T(IMG), 2, 2, ceil_mode=True))
    got = result_of_job(lambda x: flow.nn.avg_pool2d(x, 2, 2, "VALID", ceil_mode=True), IMG)
    np.testing.assert_allclose(got, F.avg_pool2d(T(IMG), 2, 2, ceil_mode=True), rtol=1e-6)
    x = IMG[..., 0].copy()
    np.testing.assert_allclose(
        result_of_job(lambda x: flow.nn.max_pool1d(x, 3, 2, "VALID", data_format="NCW"), x),
        F.max_pool1d(T(x), 3, 2),
    )
    np.testing.assert_allclose(
        result_of_job(lambda x: flow.nn.max_pool1d(x, 3, 2, "VALID"), x.transpose(0, 2, 1).copy()).transpose(
            0, 2, 1
        ),
        F.max_pool1d(T(x), 3, 2),
    )
    np.testing.assert_allclose(
        result_of_job(lambda x: flow.nn.avg_pool1d(x, 3, 2, "VALID"), x),
        F.avg_pool1d(T(x), 3, 2),
        rtol=1e-5,
        atol=1e-6,
    )
    x = rng.normal(size=(1, 2, 4, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(
        result_of_job(lambda x: flow.nn.max_pool3d(x, 2, 2, "VALID"), x), F.max_pool3d(T(x), 2)
    )
    np.testing.assert_allclose(
        result_of_job(lambda x: flow.nn.avg_pool3d(x, 2, 2, "VALID"), x),
        F.avg_pool3d(T(x), 2),
        rtol=1e-5,
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="padding must be"):
        result_of_job(lambda x: flow.nn.max_pool3d(x, 2, 2, "FULL"), x)
