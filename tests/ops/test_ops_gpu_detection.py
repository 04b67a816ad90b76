"""Boxes, samples and regions on a GPU: many boxes, points outside of the image, regions of any size."""

import math
import subprocess
import sys
import time

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
from time_limits import seconds

from oneflow._kernels import references

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not EMULATED and not torch.cuda.is_available(), reason="no CUDA device"),
]


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
"""  # noqa: E501


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
    """roi_align of one region with automatic sampling, `aligned`, from the definition, in float64; x (C, H,
    W).
    """
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
