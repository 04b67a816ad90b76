"""The CUDA kernels against the plain functions on the CPU in float64, and against the CPU kernels' dropped
elements. Tests that do not need a real GPU also run on the library of cuda_on_cpu/ (see
test_cuda_on_cpu.py).
"""

import contextlib
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from ops_table import OPS
from test_ops_kernels import SAMPLES, listed, run, to
from time_limits import seconds
from torch._subclasses.fake_tensor import FakeTensorMode

import oneflow
from oneflow._kernels import _ext, gradients, kernels, losses, references, registration

C = oneflow._C
EMULATED = "cuda_on_cpu" in os.environ.get("ONEFLOW_EXT_PATH", "")
DEVICE = "cpu" if EMULATED else "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not EMULATED and not torch.cuda.is_available(), reason="no CUDA device"),
]
compares_devices = pytest.mark.skipif(EMULATED, reason="a CUDA device and the CPU's kernels beside it")


def cuda(inputs):
    return [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in inputs]


@pytest.fixture(autouse=True)
def _as_on_cuda(monkeypatch):
    """On the emulation: half precision has kernels, and the bias gradient is a separate sum."""
    if EMULATED:
        _ext.status()
        run = kernels.run
        monkeypatch.setitem(_ext.use.__kwdefaults__, "dtypes", _ext._FLOATS | {torch.float16})
        monkeypatch.setattr(
            run,
            "bias_gelu_backward_sums",
            lambda dy, x, b, axis: _with_sum(run.bias_gelu_backward(dy, x, b, axis), axis),
        )
        monkeypatch.setattr(
            run,
            "bias_dropout_backward_sums",
            lambda dy, axis, p, seed: _with_sum(run.bias_dropout_backward(dy, p, seed), axis),
        )


def _with_sum(dx, axis):
    return dx, gradients.bias_sum(dx, axis)[None]


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
        # In float64 the plain function has no error against itself. So its error in float32 shows how much the
        # formula magnifies a rounding (106 ulp in the gradient of the IoU).
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


# --------------------------------------------------------------------------- values that are not finite
NAN, INF = float("nan"), float("inf")


def operator(name):
    assert _ext.status() == "loaded"
    return getattr(torch.ops.oneflow, name)


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


# --------------------------------------------------------------------------- nms in parts
def kept_boxes(x, limit, keep_n):
    keep, gone, kept = torch.zeros(len(x), dtype=torch.int8), torch.zeros(len(x), dtype=torch.bool), 0
    area = (x[:, 2:] - x[:, :2]).prod(1)
    for i in range(len(x)):
        if gone[i] or kept == keep_n:
            continue
        keep[i], kept = 1, kept + 1
        inter = (torch.minimum(x[i, 2:], x[:, 2:]) - torch.maximum(x[i, :2], x[:, :2])).clamp_min(0).prod(1)
        gone |= inter > limit * (area[i] + area - inter)
    return keep


@pytest.mark.parametrize("keep_n", [-1, 700])
def test_nms_of_more_boxes_than_one_part_holds(keep_n):
    torch.manual_seed(0)
    corners = torch.rand(4500, 2, dtype=torch.float64) * 60
    x = torch.cat((corners, corners + torch.rand(4500, 2) * 3), 1)
    x[17, 2], x[18, 0], x[4400] = NAN, INF, NAN
    actual = operator("nms_mask")(x.to(DEVICE), 0.3, keep_n).cpu()
    assert torch.equal(actual, kept_boxes(x, 0.3, keep_n)) and actual.sum() > 600


NMS_MEMORY = """
import resource, torch, oneflow
from oneflow._kernels import _ext
assert _ext.status() == "loaded"
device = "cuda" if torch.cuda.is_available() else "cpu"
boxes = torch.rand(50_000, 4, device=device)
def peak():
    return torch.cuda.max_memory_allocated() if device == "cuda" else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
torch.ops.oneflow.nms_mask(boxes[:100], 0.5, 1)
before = peak()
keep = torch.ops.oneflow.nms_mask(boxes, 0.5, 1)
assert keep.tolist() == [1] + [0] * 49_999
print(peak() - before)
"""


def test_nms_of_many_boxes_takes_little_memory():
    done = subprocess.run(
        [sys.executable, "-c", NMS_MEMORY], capture_output=True, text=True, timeout=seconds(300)
    )
    # all pairs at once: 312 MB
    assert done.returncode == 0 and int(done.stdout.splitlines()[-1]) < 64 << 20, done.stdout + done.stderr


# --------------------------------------------------------------------------- samples outside of the image
def test_points_outside_of_the_image_read_nothing():
    x = torch.full((1, 1, 4, 5), INF)
    x[0, 0, 0, 1:] = NAN
    outside = torch.tensor([[0, 50.0, 50, 60, 60], [0, -60.0, 1, -50, 2]])
    for ratio in (2, 0):
        assert torch.equal(
            operator("roi_align")(*cuda([x, outside]), 1.0, 2, 2, ratio, True).cpu(), torch.zeros(2, 1, 2, 2)
        )
        dx = operator("roi_align_backward")(
            torch.full((2, 1, 2, 2), NAN, device=DEVICE), outside.to(DEVICE), [1, 1, 4, 5], 1.0, ratio, True
        )
        assert torch.equal(dx.cpu(), torch.zeros(1, 1, 4, 5))


def test_taps_outside_of_the_image_read_nothing():
    x, offset, how = (
        torch.full((1, 1, 4, 5), INF),
        torch.full((1, 2, 4, 5), 100.0),
        ([1, 1], [1, 1], [0, 0], [1, 1], 1),
    )
    x[0, 0, 0, 1:] = NAN
    x, offset, mask = cuda([x, offset, torch.ones(1, 1, 4, 5)])
    assert not operator("deform_columns")(x, offset, mask, *how).any()
    for grad in operator("deform_columns_backward")(
        torch.full((1, 1, 1, 4, 5), NAN, device=DEVICE), x, offset, mask, *how
    ):
        assert not grad.any()


@pytest.mark.parametrize("far", [100.0, INF, NAN])
def test_the_plain_function_reads_nothing_outside(far):
    x, offset = (
        torch.full((1, 1, 4, 5), INF, requires_grad=True),
        torch.full((1, 2, 4, 5), far, requires_grad=True),
    )
    actual = references.deform_columns_ref(x, offset, None, [1, 1], [1, 1], [0, 0], [1, 1], 1)
    assert not actual.any()
    for grad in torch.autograd.grad(actual.sum(), [x, offset]):
        assert not grad.any()


def test_taps_across_the_border_read_only_inside():
    x, offset, how = (
        torch.full((1, 1, 3, 3), 2.0),
        torch.zeros(1, 2, 3, 3),
        ([1, 1], [1, 1], [0, 0], [1, 1], 1),
    )
    x[0, 0, 0, 0] = INF
    offset[0, :, 2, 2] = 0.5  # of the four neighbours only (2, 2) is in the image
    actual = operator("deform_columns")(*cuda([x, offset]), None, *how).cpu()[0, 0, 0]
    exact = torch.tensor([[INF, 2, 2], [2, 2, 2], [2, 2, 0.5]])
    # a neighbour inside counts though its weight is 0: 0 * inf is NaN, as in torch
    assert torch.equal(actual[1:], exact[1:]) and not actual[0, 0].isfinite()


@pytest.mark.parametrize("height, width", [(0, 5), (5, 0), (0, 0)])
def test_images_without_pixels_give_zeros(height, width):
    x, rois = cuda([torch.zeros(2, 3, height, width), torch.tensor([[0, 0, 0, 4.0, 4.0], [1, -1, -1, 1, 1]])])
    for ratio in (2, 0):
        assert torch.equal(
            operator("roi_align")(x, rois, 1.0, 2, 3, ratio, True).cpu(), torch.zeros(2, 3, 2, 3)
        )
        dx = operator("roi_align_backward")(
            torch.ones(2, 3, 2, 3, device=DEVICE), rois, [2, 3, height, width], 1.0, ratio, True
        )
        assert dx.shape == x.shape
    columns = operator("deform_columns")(
        x, torch.zeros(2, 2, height + 2, width + 2, device=DEVICE), None, [1, 1], [1, 1], [1, 1], [1, 1], 1
    )
    assert columns.shape == (2, 3, 1, height + 2, width + 2) and not columns.any()


# --------------------------------------------------------------------------- regions of any size
def region_mean(x, roi, bins):
    """roi_align of one region with automatic sampling, `aligned`, from the definition, in float64; x (C, H, W)."""
    y1, x1, y2, x2 = (float(roi[i]) - 0.5 for i in (2, 1, 4, 3))
    per = [max(math.ceil((b - a) / bins), 1) for a, b in ((y1, y2), (x1, x2))]
    axes = [
        a + (torch.arange(bins * n, dtype=torch.float64) + 0.5) * ((b - a) / bins / n)
        for (a, b), n in zip(((y1, y2), (x1, x2)), per)
    ]
    weights = []
    for at, n, size in zip(axes, per, x.shape[1:]):
        inside, moved = (at >= -1) & (at <= size), at.clamp(0, size - 1)
        low = moved.floor().long().clamp_max(size - 1)
        high = (low + 1).clamp_max(size - 1)
        weight = torch.zeros(at.numel(), size, dtype=torch.float64)
        rows = torch.arange(at.numel())
        weight[rows, low] += (1 - (moved - low)) * inside
        weight[rows, high] += (moved - low) * inside
        weights.append(weight.unflatten(0, (bins, n)).mean(1))
    return torch.einsum("ah,bw,chw->cab", *weights, x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "box",
    [
        (-1000.0, -900.0, 1100.0, 950.0),
        (-3.0, -70000.0, 9.0, 80000.0),
        (2.0, 2.0, 300.0, 2.5),
        (-200.0, 3.0, -100.0, 4.0),
    ],
)
def test_regions_far_larger_than_the_image(box, dtype):
    torch.manual_seed(0)
    x, rois = torch.randn(1, 2, 9, 11, dtype=dtype), torch.tensor([[0, *box]], dtype=dtype)
    actual = operator("roi_align")(*cuda([x, rois]), 1.0, 3, 3, 0, True).cpu()[0]
    torch.testing.assert_close(
        actual.double(),
        region_mean(x[0], rois[0], 3),
        rtol=1e-2 if dtype is torch.float32 else 1e-9,
        atol=1e-5 if dtype is torch.float32 else 1e-12,
    )


@pytest.mark.parametrize("far", [1e7, 1e9, 1e12, 1e300, INF, NAN])
@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_region_keeps_the_gpu_busy(far, at, dtype):
    box = [0, 1.0, 1, 3, 3]
    box[at] = far if at > 2 else -far
    x, rois = cuda([torch.ones(1, 2, 9, 11, dtype=dtype), torch.tensor([box, [0, 1, 1, 3, 3]], dtype=dtype)])
    began = time.monotonic()
    actual = operator("roi_align")(x, rois, 1.0, 2, 2, 0, True).cpu()
    dx = operator("roi_align_backward")(
        torch.ones_like(actual).to(DEVICE), rois, [1, 2, 9, 11], 1.0, 0, True
    ).cpu()
    assert time.monotonic() - began < seconds(5)
    # the neighboring region is unaffected
    torch.testing.assert_close(actual[1], torch.ones(2, 2, 2, dtype=dtype))
    assert dx.isfinite().all() and actual[0].isfinite().all() and (abs(far) < 1e10 or not actual[0].any())


def test_points_that_float32_does_not_tell_apart_are_not_all_visited():
    """Of a region of 2e12 pixels in 1000 bins, 65536 * 65536 points would fall on the pixel at 0."""
    x, rois = cuda([torch.ones(1, 1, 3, 3), torch.tensor([[0, -1e12, -1e12, 1e12, 1e12]])])
    began = time.monotonic()
    assert not operator("roi_align")(x, rois, 1.0, 1000, 1000, 0, True).any()
    assert time.monotonic() - began < seconds(20)


def test_a_region_that_names_no_image_gives_nan_and_no_gradient():
    rois = torch.tensor(
        [[2, 1.0, 1, 3, 3], [-1, 1, 1, 3, 3], [NAN, 1, 1, 3, 3], [1e30, 1, 1, 3, 3], [1, 1, 1, 3, 3]],
        device=DEVICE,
    )
    actual = operator("roi_align")(torch.ones(2, 1, 5, 5, device=DEVICE), rois, 1.0, 2, 2, 2, True).cpu()
    assert actual[:4].isnan().all() and torch.equal(actual[4], torch.ones(1, 2, 2))
    dx = operator("roi_align_backward")(
        torch.ones(5, 1, 2, 2, device=DEVICE), rois, [2, 1, 5, 5], 1.0, 2, True
    ).cpu()
    assert not dx[0].any() and float(dx[1].sum()) == 4


# --------------------------------------------------------------------------- arguments
def moved(argument, device):
    return [t.to(device) for t in argument] if isinstance(argument, list) else argument.to(device)


def is_tensors(argument):
    return (
        isinstance(argument, torch.Tensor)
        or isinstance(argument, list)
        and bool(argument)
        and isinstance(argument[0], torch.Tensor)
    )


CUDA_SOURCES = sorted((Path(__file__).parents[2] / "csrc" / "cuda").glob("*.cu"))
CUDA_NAMES = {name for path in CUDA_SOURCES for name in re.findall(r'm\.impl\("(\w+)"', path.read_text())}
ON_CUDA = [
    (op, [a.detach() if isinstance(a, torch.Tensor) else a for a in args])
    for op, args in SAMPLES
    if str(op).split(".")[-1] in CUDA_NAMES
]


@pytest.mark.parametrize(
    "op, args", ON_CUDA, ids=lambda s: str(s).split(".")[-1] if not isinstance(s, list) else ""
)
def test_a_tensor_on_another_device_is_refused(op, args):
    """Dispatched to the kernels of the first tensor's device: meta beside cpu, cpu beside cuda."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU if EMULATED else torch._C.DispatchKey.CUDA)
    args = [moved(a, DEVICE) if is_tensors(a) else a for a in args]
    tensors = [i for i, a in enumerate(args) if is_tensors(a)]
    op.default.redispatch(keys, *args)
    for i in tensors[1:]:
        strange = [moved(a, "meta" if EMULATED else "cpu") if k == i else a for k, a in enumerate(args)]
        with pytest.raises(RuntimeError, match="device"):
            op.default.redispatch(keys, *strange)


def misfits():
    x, one, half = torch.ones(4, 6), torch.ones(1), torch.ones(1, dtype=torch.float16)
    heads, table = torch.ones(2, 3, 2, 6), torch.ones(1, 3, 4)
    yield "pointwise", (kernels.POINT["iou"], [x, x], 1, [0.1]), "inputs must have 5 entries, found 2"
    yield "pointwise", (kernels.POINT["ciou"], [x] * 4, 1, [0.1]), "outputs must be 2 to 2, found 1"
    yield "fake_quantize", (x, half, half, -1.0, 1.0), "scale must have dtype float32, float64, found float16"
    yield "fake_quantize", (x, one, one.double(), -1.0, 1.0), "zero_point must have the dtype of scale"
    yield "fake_quantize", (x, one[:0], one, -1.0, 1.0), "scale must have 1 element, found 0"
    yield "bias_dropout", (x, x[0], 1, 0.5, torch.tensor(1.0)), "seed must have dtype int64, found float32"
    yield (
        "masked_softmax",
        (x, torch.ones(4, 5, dtype=torch.bool), 0, 1.0, 0.0, 0.0, None),
        r"mask must have the sizes of x, \(4, 6\), or 1, found \(4, 5\)",
    )
    yield (
        "masked_softmax_backward",
        (x, x[:3], x, None, 0, 1.0, 0.5, torch.tensor(1)),
        r"ddropped must have the shape of y, \(4, 6\), found \(3, 6\)",
    )
    yield "rotary", (heads, table, table, 0, False, [0, 1, 2, 3], False), "parts must be at least 1, found 0"
    yield "rotary", (heads, table, table, 4, False, [0, 1, 2, 3], False), "parts must part the 4 columns"
    yield (
        "rotary",
        (heads.half(), table.half(), table.half(), 1, False, [0, 1, 2, 3], False),
        "cos must have dtype float32, found float16",
    )
    yield (
        "rotary",
        (heads, table, table.double(), 1, False, [0, 1, 2, 3], False),
        "sin must have the dtype of cos",
    )
    yield "adam_", ([x], [x], [x.double()], [x], [0.0] * 8), r"m\[0\] must have the dtype of"
    yield "adam_", ([x], [x], [x], [x[:3]], [0.0] * 8), r"v\[0\] must have the shape of"
    yield "momentum_", ([x], [x], [], [0.0] * 6), "buffer must have 1 entry, found 0"
    yield (
        "ctc_greedy_decode",
        (torch.ones(3, 2, 4), torch.ones(2, dtype=torch.int32), True),
        "input_lengths must have dtype int64, found int32",
    )
    yield (
        "ctc_greedy_decode",
        (torch.ones(3, 2, 4), torch.ones(1, dtype=torch.int64), True),
        r"input_lengths must have shape \(2\), found \(1\)",
    )


@pytest.mark.parametrize(
    "name, args, message",
    list(misfits()),
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_arguments_that_do_not_fit_are_refused(name, args, message):
    with pytest.raises(RuntimeError, match=f"oneflow::{name}: {message}"):
        operator(name)(*(moved(a, DEVICE) if is_tensors(a) else a for a in args))


def test_a_mask_of_size_one_holds_for_every_row_and_column():
    x = torch.randn(2, 3, 4, 33)
    for shape in ((1, 1, 1, 33), (2, 1, 4, 1), (2, 3, 4, 1), (1, 3, 1, 33)):
        mask = torch.rand(shape) > 0.4
        actual = operator("masked_softmax")(*cuda([x, mask]), 0, 2.0, -9.0, 0.0, None)[0].cpu()
        torch.testing.assert_close(actual, torch.softmax(torch.where(mask, 2 * x, -9.0), -1))


# --------------------------------------------------------------------------- determinism
@pytest.fixture
def deterministic():
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def backward_calls(device):
    how = [3, 3], [1, 1], [1, 1], [1, 1], 1
    x, offset = torch.zeros(1, 2, 5, 5, device=device), torch.zeros(1, 18, 5, 5, device=device)
    yield (
        "roi_align_backward",
        (
            torch.zeros(1, 2, 2, 2, device=device),
            torch.zeros(1, 5, device=device),
            [1, 2, 5, 5],
            1.0,
            2,
            True,
        ),
    )
    yield "deform_columns_backward", (torch.zeros(1, 2, 9, 5, 5, device=device), x, offset, None, *how)


def on_cuda():
    """A mode in which tensors on cuda exist without a GPU."""
    return FakeTensorMode() if EMULATED else contextlib.nullcontext()


def test_atomics_raise_the_alert_of_deterministic_algorithms(deterministic):
    with on_cuda():
        for name, args in backward_calls("cuda"):
            with pytest.raises(
                RuntimeError, match=f"oneflow::{name} on CUDA does not have a deterministic implementation"
            ):
                operator(name)(*args)
            with (
                pytest.raises(RuntimeError, match="does not have a deterministic implementation"),
                torch._C._AutoDispatchBelowAutograd(),
            ):
                operator(name)(*args)
            torch.use_deterministic_algorithms(True, warn_only=True)
            with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
                operator(name)(*args)
            torch.use_deterministic_algorithms(False)
            operator(name)(*args)
            torch.use_deterministic_algorithms(True)


def test_the_cpu_kernels_raise_no_alert(deterministic):
    for name, args in backward_calls("cpu"):
        operator(name)(*args)


def test_two_kernels_add_by_atomics():
    """The operator of a third one belongs into registration.NOT_DETERMINISTIC_ON_CUDA too."""
    sources = [path.read_text() for path in CUDA_SOURCES]
    bodies = {
        name: body
        for text in sources
        for name, body in re.findall(r"__global__ void (\w+)\((.*?)\n\}", text, re.S)
    }
    assert {name for name, body in bodies.items() if "atomicAdd(" in body} == {
        "roi_kernel",
        "deform_backward_kernel",
    }
    assert registration.NOT_DETERMINISTIC_ON_CUDA == ("roi_align_backward", "deform_columns_backward")


def test_a_gradient_on_cuda_must_be_deterministic(deterministic):
    with on_cuda():
        x, offset = (
            torch.zeros(1, 2, 5, 5, device="cuda", requires_grad=True),
            torch.zeros(1, 18, 5, 5, device="cuda"),
        )
        assert _ext.needs_deterministic_gradient(x) and _ext.needs_deterministic_gradient(offset, None, x)
        assert not _ext.needs_deterministic_gradient(offset, None, offset)
        with torch.no_grad():
            assert not _ext.needs_deterministic_gradient(x)
        torch.use_deterministic_algorithms(False)
        assert not _ext.needs_deterministic_gradient(x)
    assert not _ext.needs_deterministic_gradient(torch.zeros(1, requires_grad=True))


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.name.startswith(("roi_align", "deform_conv2d"))], ids=lambda op: op.name
)
def test_public_functions_take_the_plain_one_where_the_gradient_must_be_deterministic(op, monkeypatch):
    _ext.status()
    monkeypatch.setattr(_ext, "needs_deterministic_gradient", lambda *tensors: True)
    monkeypatch.setattr(kernels.run, "roi_align", None)
    monkeypatch.setattr(kernels.run, "deform_columns", None)
    inputs = cuda(op.make(torch.float32, 7))
    for actual, plain in zip(run(op.call, op, inputs), run(op.plain, op, inputs)):
        torch.testing.assert_close(actual, plain)  # the plain gradients add in any order on a GPU, too
