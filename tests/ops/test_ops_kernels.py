"""Each kernel against its plain-torch reference: values, gradients, dtypes, layouts, shapes, fake kernels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import frozen, listed, run, to
from ops_table import OPS

import oneflow
from oneflow._kernels import _ext, image, losses

C = oneflow._C

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")

IDS = [op.name for op in OPS]

DIFFERENTIABLE = [op for op in OPS if op.differentiable]


@pytest.mark.parametrize("op", OPS, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_no_farther_from_float64_than_torch(op, dtype):
    if dtype not in op.dtypes:
        pytest.skip(f"{op.name} has no {dtype} kernel")
    torch.manual_seed(0)
    for n in (1, 4, 37):
        inputs = op.make(dtype, n)
        actual, torchs = run(op.call, op, inputs), run(op.plain, op, inputs)
        exact = run(op.plain, op, to(inputs, torch.float64))
        assert [(f.shape, f.dtype) for f in actual] == [(t.shape, t.dtype) for t in torchs]
        for i, (f, t, e) in enumerate(zip(actual, torchs, exact)):
            if not f.is_floating_point():
                assert torch.equal(f, t), f"result {i}"
                continue
            ours, theirs = ((x.double() - e).abs().max().item() if x.numel() else 0.0 for x in (f, t))
            # Twice torch's own distance, or four roundings of the largest value: the sums run in another
            # order.
            ulp = torch.finfo(dtype).eps * max(e.abs().max().item() if e.numel() else 0.0, 1e-30)
            assert ours <= max(2 * theirs, 4 * ulp), (
                f"n={n}, result {i}: {ours:.3g} from float64, torch {theirs:.3g}"
            )


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op.whole], ids=lambda op: op.name)
def test_gradients_agree_with_differences(op):
    torch.manual_seed(0)
    inputs = frozen(op, op.make(torch.float64, 3))
    assert torch.autograd.gradcheck(op.call, inputs, atol=1e-6)
    if op.again:
        assert torch.autograd.gradgradcheck(op.call, inputs, atol=1e-5, fast_mode=True)


def test_ctc_takes_nan_for_the_best_class_as_torch_does():
    nan, inf = float("nan"), float("inf")
    x = torch.rand(6, 3, 20)
    x[0, 1, 0], x[1, 0, 15], x[2, 0, 3], x[2, 0, 13], x[3, 1] = nan, nan, nan, nan, -inf
    lengths = torch.tensor([6, 5, -1])
    decoded, sums = torch.ops.oneflow.ctc_greedy_decode(x, lengths, True)
    expected_decoded, expected_sums = losses.ctc_greedy_decoder_ref(x, lengths, True)
    assert torch.equal(decoded, expected_decoded)
    torch.testing.assert_close(sums, expected_sums, equal_nan=True)


@pytest.mark.parametrize(
    "op",
    [op for op in OPS if op.name not in ("fake_quantization", "roi_align", "nms", "ctc_greedy_decoder")],
    ids=lambda op: op.name,
)
def test_operators_take_any_strides(op):
    torch.manual_seed(0)
    inputs = op.make(torch.float32, 6)
    strided = []
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.ndim and x.is_floating_point():
            wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
            x = wide[..., ::2].copy_(x)
        strided.append(x)
    for a, b in zip(run(op.call, op, inputs), run(op.call, op, strided)):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "op",
    [op for op in OPS if op.name not in ("fused_dot_feature_interaction self", "deform_conv2d")],
    ids=lambda op: op.name,
)
def test_operators_take_empty_tensors(op):
    inputs = op.make(torch.float32, 0)
    actual, plain = listed(op.call(*inputs)), listed(op.plain(*inputs))
    assert [(f.shape, f.dtype) for f in actual] == [(p.shape, p.dtype) for p in plain]


@given(
    rows=st.integers(0, 5),
    n=st.integers(1, 70),
    heads=st.integers(1, 3),
    fill=st.sampled_from([0.0, -10.0, float("-inf")]),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_masked_softmax_shapes(rows, n, heads, fill, data):
    x = torch.randn(2, heads, rows, n, dtype=torch.float64)
    shape = [data.draw(st.sampled_from([1, size])) for size in x.shape]
    mask = torch.rand(shape) > 0.4
    torch.testing.assert_close(
        C.fused_scale_mask_softmax(x, mask, fill_value=fill, scale=0.5),
        torch.softmax(torch.where(mask, x * 0.5, fill), -1),
        equal_nan=True,
    )


@given(shape=st.lists(st.integers(0, 9), min_size=1, max_size=4), data=st.data())
@settings(max_examples=40, deadline=None)
def test_bias_gelu_shapes(shape, data):
    x = torch.randn(shape, dtype=torch.float64)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    bias = torch.randn(shape[axis], dtype=torch.float64)
    expected = torch.nn.functional.gelu(
        x + bias.reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))])
    )
    torch.testing.assert_close(C.fused_bias_add_gelu(x, bias, axis=axis), expected)


# --------------------------------------------------------------------------- dropout
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_bias_dropout_keeps_and_scales_its_share(dtype, axis):
    torch.manual_seed(5)
    x, b = torch.randn(300, 129, dtype=dtype), torch.randn((300, 129)[axis], dtype=dtype)
    x.requires_grad_(), b.requires_grad_()
    y = C.fused_bias_add_dropout(x, b, p=0.25, axis=axis)
    whole = (x.double() + (b if axis else b[:, None]).double()).detach()
    kept = y != 0
    assert abs(kept.double().mean() - 0.75) < 0.01  # 38700 samples: the standard deviation is 0.0022
    torch.testing.assert_close(
        y[kept], (whole / 0.75).to(dtype)[kept], rtol=2 * torch.finfo(dtype).eps, atol=0
    )
    y.sum().backward()
    assert torch.equal((x.grad != 0)[whole != 0], kept[whole != 0])
    torch.testing.assert_close(b.grad, x.grad.sum(1 - axis))
    torch.manual_seed(5)
    torch.randn(300, 129, dtype=dtype), torch.randn((300, 129)[axis], dtype=dtype)
    assert torch.equal(C.fused_bias_add_dropout(x, b, p=0.25, axis=axis), y), (
        "the same seed gives the same mask"
    )
    assert not torch.equal(C.fused_bias_add_dropout(x, b, p=0.25, axis=axis), y), (
        "the next call gives another"
    )
    g = torch.Generator().manual_seed(1)
    first = C.fused_bias_add_dropout(x, b, p=0.25, axis=axis, generator=g)
    assert torch.equal(C.fused_bias_add_dropout(x, b, p=0.25, axis=axis, generator=g.manual_seed(1)), first)


def test_dropped_fractions_are_even_over_positions():
    x, b = torch.ones(512, 640), torch.zeros(640)
    kept = torch.stack([C.fused_bias_add_dropout(x, b, p=0.5, axis=1) != 0 for _ in range(20)]).double()
    assert (
        kept.mean((0, 1)) - 0.5
    ).abs().max() < 0.035  # 10240 draws a column: 0.005 deviation, the worst of 640 is at 7 of them
    assert (kept.mean((0, 2)) - 0.5).abs().max() < 0.035
    pairs = (kept[..., 1:] * kept[..., :-1]).mean()
    assert abs(pairs - 0.25) < 0.002  # neighbours independent


def test_masked_softmax_of_a_mask_that_lies_by_columns():
    """The operator is also called directly, without the function that makes the mask contiguous."""
    x, mask = torch.randn(3, 5, requires_grad=True), (torch.rand(5, 3) > 0.5).t()
    y, _ = torch.ops.oneflow.masked_softmax(x, mask, 0, 2.0, -9.0, 0.0, None)
    right = torch.softmax(torch.where(mask, 2 * x, -9.0), -1)
    torch.testing.assert_close(y, right)
    g = torch.randn(3, 5)
    torch.testing.assert_close(torch.autograd.grad(y, x, g), torch.autograd.grad(right, x, g))


def test_softmax_dropout_gradient():
    torch.manual_seed(2)
    x, mask = (
        torch.randn(2, 3, 20, 33, dtype=torch.float64, requires_grad=True),
        torch.rand(2, 1, 20, 33) > 0.2,
    )
    dropped, y = C.fused_scale_mask_softmax_dropout(x, mask, fill_value=-50.0, scale=0.7, p=0.4)
    factor = torch.where(dropped != 0, 1 / 0.6, 0.0)
    reference = torch.softmax(torch.where(mask, x * 0.7, -50.0), -1)
    torch.testing.assert_close(y, reference)
    torch.testing.assert_close(dropped, reference * factor)
    w1, w2 = torch.randn_like(y), torch.randn_like(y)
    (actual,) = torch.autograd.grad((dropped * w1).sum() + (y * w2).sum(), x, retain_graph=True)
    (expected,) = torch.autograd.grad(
        (reference * factor * w1).sum() + (reference * w2).sum(), x, retain_graph=True
    )
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad((dropped * w1).sum(), x)[0],
        torch.autograd.grad((reference * factor * w1).sum(), x)[0],
    )


def test_evaluation_does_not_drop():
    x, mask = torch.randn(2, 4, 5), torch.ones(2, 4, 5, dtype=torch.bool)
    dropped, y = C.fused_scale_mask_softmax_dropout(x, mask, p=0.9, training=False)
    assert torch.equal(dropped, y)


# --------------------------------------------------------------------------- autocast
@pytest.mark.parametrize("kernels_used", [True, False], ids=["kernels", "plain"])
@pytest.mark.parametrize(
    "op",
    [
        lambda x, b: C.fused_bias_add_gelu(x, b, axis=1),
        lambda x, b: C.fused_bias_add_gelu(a=x, b=b, axis=1),
        lambda x, b: C.fused_bias_add_dropout(x, b, p=0.5, axis=1),
        lambda x, b: C.fused_fast_gelu_mul(x, b.expand(4, 6)),
        lambda x, b: C.quick_gelu(x + 0 * b.to(x.dtype)),
        lambda x, b: C.fused_bias_add_scale_mask_softmax_dropout(
            x, b, torch.ones(4, 6, dtype=torch.bool), p=0.0
        )[0],
    ],
    ids=["gelu", "gelu by name", "dropout", "gelu mul", "quick gelu", "softmax"],
)
def test_autocast_follows_the_input(op, kernels_used, monkeypatch):
    if not kernels_used:
        monkeypatch.setattr(_ext, "use", lambda *a, **k: False)
    for dtype in (torch.bfloat16, torch.float32):
        x, b = torch.randn(4, 6, dtype=dtype, requires_grad=True), torch.randn(6, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            y = op(x, b)
        assert y.dtype is dtype
        y.float().sum().backward()
        assert x.grad.dtype is dtype and b.grad.dtype is torch.float32


def test_autocast_lowers_matrix_products():
    x, w, b = torch.randn(4, 6), torch.randn(6, 6), torch.randn(6)
    with torch.autocast("cpu", torch.bfloat16):
        actual = [
            C.fused_matmul_bias(x, w, b),
            C.fused_glu(x, w, b),
            C.fused_mlp(x, [w], [b], True),
            C.fused_dot_feature_interaction([x.expand(2, 4, 6)]),
        ]
    assert {f.dtype for f in actual} == {torch.bfloat16}


# --------------------------------------------------------------------------- optimizers
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["adam", "momentum", "nesterov", "maximize", "sgd"])
def test_optimizer_updates_match_the_plain_ones(name, dtype, monkeypatch):
    torch.manual_seed(0)
    shapes = [(3, 5), (0,), (), (700,)]
    lists = [[torch.randn(s, dtype=dtype).abs() for s in shapes] for _ in range(4)]

    def step():
        model, diff, m, v = ([t.clone() for t in tensors] for tensors in lists)
        for _ in range(2):
            if name == "adam":
                C.multi_tensor_adam_update(
                    model, diff, m, v, 0.1, 0.02, 0.9, 0.99, 0.19, 0.0199, True, 0.5, 0.03, 1e-6
                )
            elif name == "sgd":
                C.multi_tensor_sgd_update(model, diff, 0.5, 0.02, 0.1)
            else:
                C.multi_tensor_momentum_update(
                    model, diff, m, 0.5, 0.02, 0.1, 0.9, 0.1, name == "nesterov", name == "maximize"
                )
        return model + m + v

    actual = step()
    monkeypatch.setattr(_ext, "use", lambda *a, **k: False)
    for a, b in zip(actual, step()):
        # bfloat16: the plain way rounds after each of its steps, the kernel once
        torch.testing.assert_close(
            a, b, rtol=1e-5 if dtype is torch.float32 else 0.05, atol=1e-6 if dtype is torch.float32 else 0.02
        )


# --------------------------------------------------------------------------- one_embedding
def test_unique_key_value_pair():
    keys = torch.randint(-5, 5, (40, 3))
    count, unique, tables, inverse = C.one_embedding_unique_key_value_pair(keys, None, 3, "e")
    n = int(count)
    assert n == keys.unique().numel() == unique[:n].unique().numel()
    assert (
        torch.equal(unique[inverse.long()], keys)
        and inverse.dtype == torch.int32
        and inverse.shape == keys.shape
    )
    assert not unique[n:].any() and not tables[n:].any()
    first = {int(k): i % 3 for i, k in reversed(list(enumerate(keys.reshape(-1))))}
    assert [first[int(k)] for k in unique[:n]] == tables[:n].tolist()


# --------------------------------------------------------------------------- images
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("height,width", [(1, 1), (3, 7), (2, 256), (4, 531), (0, 5)])
def test_crop_mirror_normalize(channels, height, width):
    images = torch.randint(0, 256, (3, height + 4, width + 5, channels), dtype=torch.uint8)
    for batch in (
        images,
        images.permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0),
        images[:, ::2][:, : height + 1] if height < 4 else images,
    ):
        for mirror in (None, torch.tensor([0, 1, -1], dtype=torch.int8)):
            top = min(2, batch.shape[1] - height)
            actual, plain = torch.empty(3, channels, height, width), torch.empty(3, channels, height, width)
            args = batch, mirror, top, 3, [1.5, 100.25, 7.125][:channels], [0.37, 1.01, 0.003][:channels]
            image.crop_mirror_normalize(*args, actual)
            image.crop_mirror_normalize_ref(*args, plain)
            assert torch.equal(actual, plain)  # the same two roundings of each value


def test_crop_mirror_normalize_refuses():
    images, out = torch.zeros(2, 5, 6, 3, dtype=torch.uint8), torch.empty(2, 3, 4, 4)
    run = torch.ops.oneflow.crop_mirror_normalize
    for args, message in [
        (
            (images.float(), None, 0, 0, [0.0] * 3, [1.0] * 3, out),
            "images must have dtype uint8, found float32",
        ),
        ((images, None, 2, 0, [0.0] * 3, [1.0] * 3, out), "top must be 0 to 1, found 2"),
        ((images, None, 0, 0, [0.0], [1.0] * 3, out), "mean must have 3 entries, found 1"),
        (
            (images, torch.zeros(3, dtype=torch.int8), 0, 0, [0.0] * 3, [1.0] * 3, out),
            r"mirror must have shape \(2\), found \(3\)",
        ),
        (
            (images, None, 0, 0, [0.0] * 3, [1.0] * 3, out.double()),
            "out must have dtype float32, found float64",
        ),
    ]:
        with pytest.raises(RuntimeError, match=message):
            run(*args)


def test_relu_and_its_gradient_keep_nan():
    out = torch.ops.oneflow.rnn(
        torch.tensor([[[float("nan"), -1.0, 2.0]]]), torch.zeros(3, 3), None, torch.zeros(1, 3), True, False
    )
    assert out[0, 0].isnan().tolist() == [True, False, False] and out[0, 0, 1:].tolist() == [0, 2]
    assert torch.ops.oneflow.rnn_backward(
        torch.ones(1, 1, 3), None, out, torch.zeros(3, 3), True, False
    ).tolist() == [[[1, 0, 1]]]
