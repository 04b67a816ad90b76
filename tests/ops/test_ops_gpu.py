"""The CUDA kernels against the plain functions on the CPU in float64, and against the CPU kernels' dropped
elements. Tests that do not need a real GPU also run on the library of cuda_on_cpu/ (see
test_cuda_on_cpu.py).
"""

import pytest
import torch
from gpu_cases import (
    DEVICE,
    EMULATED,
    INF,
    NAN,
    _as_on_cuda,  # noqa: F401
    cuda,
    operator,
)
from kernel_cases import listed, run, to
from ops_table import OPS

import oneflow
from oneflow._kernels import _ext, kernels, losses, references

C = oneflow._C

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not EMULATED and not torch.cuda.is_available(), reason="no CUDA device"),
]

compares_devices = pytest.mark.skipif(EMULATED, reason="a CUDA device and the CPU's kernels beside it")


@compares_devices
def test_library_has_cuda_kernels():
    assert _ext.status() == "loaded" and _ext.has_kernels("cuda")


@pytest.mark.parametrize(
    "op",
    [op for op in OPS if not op.name.startswith("fused_dot_feature_interaction")],  # has no CUDA kernel
    ids=lambda op: op.name,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_no_farther_from_float64_than_torch(op, dtype):
    if dtype not in (*op.dtypes, *((torch.float16,) if torch.bfloat16 in op.dtypes else ())):
        pytest.skip(f"{op.name} has no {dtype} kernel")
    torch.manual_seed(0)
    for n in (1, 37, 130):
        inputs = op.make(dtype, n)
        actual, torchs = run(op.call, op, cuda(inputs)), run(op.plain, op, cuda(inputs))
        exact = run(op.plain, op, to(inputs, torch.float64))
        # In float64 the plain function has no error against itself. So its error in float32 shows how much
        # the formula magnifies a rounding (106 ulp in the gradient of the IoU).
        rough = run(op.plain, op, to(inputs, torch.float32)) if dtype is torch.float64 else torchs
        for i, (f, t, r, e) in enumerate(zip(actual, torchs, rough, exact)):
            assert f.device.type == DEVICE and (f.shape, f.dtype) == (t.shape, t.dtype)
            if not f.is_floating_point():
                assert torch.equal(f, t), f"result {i}"
                continue
            ours, theirs = ulps(f, e), ulps(r, e)
            assert ours <= max(2 * theirs, 8), (
                f"n={n}, result {i}: {ours:.3g} ulp from float64, torch {theirs:.3g}"
            )


def ulps(actual, exact):
    """The largest error of `found`, in roundings (of its dtype) of the largest number."""
    if not actual.numel():
        return 0.0
    rounding = torch.finfo(actual.dtype).eps * max(exact.abs().max().item(), 1e-30)
    return (actual.double().cpu() - exact).abs().max().item() / rounding


@pytest.mark.parametrize(
    "op",
    [op for op in OPS if op.name not in ("fused_dot_feature_interaction self", "deform_conv2d")],
    ids=lambda op: op.name,
)
def test_empty(op):
    inputs = op.make(torch.float32, 0)
    assert [f.shape for f in listed(op.call(*cuda(inputs)))] == [p.shape for p in listed(op.plain(*inputs))]


@compares_devices
def test_dropout_drops_the_same_elements_as_on_the_cpu():
    x, b, seed = torch.randn(300, 129), torch.randn(129), torch.tensor(1234567)
    here = torch.ops.oneflow.bias_dropout(x, b, 1, 0.3, seed)
    there = torch.ops.oneflow.bias_dropout(x.cuda(), b.cuda(), 1, 0.3, seed.cuda())
    torch.testing.assert_close(there.cpu(), here)
    scores = torch.randn(3, 70, 70)
    for a, b in zip(
        torch.ops.oneflow.masked_softmax(scores, None, 0, 1.0, -9.0, 0.4, seed),
        torch.ops.oneflow.masked_softmax(scores.cuda(), None, 0, 1.0, -9.0, 0.4, seed.cuda()),
    ):
        torch.testing.assert_close(b.cpu(), a)


@compares_devices
@pytest.mark.parametrize(
    "like",
    [
        [torch.empty(3, 5), torch.empty(0), torch.empty(7000)],
        [torch.empty(8) for _ in range(150)],
        [torch.empty(4), torch.empty(4, dtype=torch.float64), torch.empty(6), torch.empty(2)],
    ],
    ids=["sizes", "more than one launch takes", "dtypes"],
)
def test_optimizers_match_the_cpu(like):
    torch.manual_seed(0)
    lists = [[torch.rand_like(t) for t in like] for _ in range(4)]
    here, there = [[t.clone() for t in part] for part in lists], [[t.cuda() for t in part] for part in lists]
    for model, diff, m, v in (here, there):
        C.multi_tensor_adam_update(
            model, diff, m, v, 0.1, 0.02, 0.9, 0.99, 0.19, 0.0199, True, 0.5, 0.03, 1e-6
        )
        C.multi_tensor_momentum_update(model, diff, m, 0.5, 0.02, 0.1, 0.9, 0.1, True, False)
        C.multi_tensor_sgd_update(model, diff, 0.5, 0.02, 0.1)
    for a, b in zip((t for part in here for t in part), (t for part in there for t in part)):
        torch.testing.assert_close(b.cpu(), a)


@compares_devices
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_unique_ids_are_in_the_cpus_order(n):
    keys = torch.randint(-40, 40, (n,))
    tables = (keys % 3).to(torch.uint8)
    for a, b in zip(
        C.one_embedding_unique_key_value_pair(keys, tables, 3, "e"),
        C.one_embedding_unique_key_value_pair(keys.cuda(), tables.cuda(), 3, "e"),
    ):
        assert torch.equal(b.cpu(), a)


@pytest.mark.parametrize(
    "name, plain, scalars",
    [
        ("intersection", references.intersection_ref, []),
        ("convex", lambda *x: references.convex_ref(*x, 1e-7), [1e-7]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_minimum_and_maximum_keep_nan(name, plain, scalars, dtype):
    corners = torch.arange(8.0).repeat(20, 1)
    corners[torch.arange(8), torch.arange(8)] = NAN
    corners[torch.arange(8) + 8, torch.arange(8)] = INF
    inputs = [x.to(dtype).contiguous() for x in corners.T]
    actual = operator("pointwise")(kernels.POINT[name], cuda(inputs), 1, scalars)[0].cpu()
    torch.testing.assert_close(actual, plain(*inputs), equal_nan=True)
    assert actual[:8].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_fake_quantize_keeps_nan(dtype):
    x = torch.tensor([NAN, INF, -INF, 0.5, 1e4], dtype=dtype)
    exact = torch.tensor([NAN, 127.0, -128.0, 0.5, 127.0]).to(dtype)
    scale, zero_point = torch.tensor([0.5]), torch.tensor([1.0])
    exact[1:] = ((x[1:].float() / 0.5 + 1).round().clamp(-128, 127) - 1).mul(0.5).to(dtype)
    for actual in (
        operator("fake_quantize")(*cuda([x, scale, zero_point]), -128.0, 127.0),
        operator("pointwise")(kernels.POINT["fake_quantize"], cuda([x]), 1, [0.5, 1.0, -128.0, 127.0])[0],
    ):
        torch.testing.assert_close(actual.cpu(), exact, equal_nan=True, rtol=0, atol=0)


def test_masked_softmax_of_rows_with_nan_and_infinity():
    x = torch.randn(5, 300)
    x[1, 7], x[2, 9], x[3] = NAN, INF, -INF
    actual = operator("masked_softmax")(
        x.to(DEVICE), torch.ones(5, 300, dtype=torch.bool, device=DEVICE), 0, 1.0, 0.0, 0.0, None
    )[0]
    torch.testing.assert_close(actual.cpu(), torch.softmax(x, -1), equal_nan=True)


def test_ctc_takes_nan_for_the_best_class_as_torch_does():
    x = torch.rand(6, 3, 200)
    x[1, 0, 150], x[2, 0, 3], x[2, 0, 131], x[3, 1] = NAN, NAN, NAN, -INF
    lengths = torch.tensor([6, 5, -1])
    actual = operator("ctc_greedy_decode")(*cuda([x, lengths]), True)
    for f, p in zip(actual, losses.ctc_greedy_decoder_ref(x, lengths, True)):
        torch.testing.assert_close(f.cpu(), p, equal_nan=True)
