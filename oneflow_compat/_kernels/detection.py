"""Box suppression, region pooling and deformable convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from . import _check, _ext, kernels, references

__all__ = ["deform_conv2d", "nms", "nms_mask", "raw_deform_conv2d", "roi_align"]


def nms_mask_ref(x: torch.Tensor, iou_threshold: float, keep_n: int) -> torch.Tensor:
    """int8 [N]: 1 where the box survives."""
    left_top = torch.maximum(x[:, None, :2], x[None, :, :2])
    right_bottom = torch.minimum(x[:, None, 2:], x[None, :, 2:])
    inter = (right_bottom - left_top).clamp_min(0).prod(2)
    area = (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
    covers = inter > iou_threshold * (area[:, None] + area[None, :] - inter)
    keep = torch.ones(x.shape[0], dtype=torch.bool, device=x.device)
    kept = 0
    for i in range(x.shape[0]):
        if kept == keep_n:
            keep[i:] = False
            break
        if keep[i]:
            kept += 1
            keep[i + 1 :] &= ~covers[i, i + 1 :]
    return keep.to(torch.int8)


@torch.no_grad()
def nms_mask(x: torch.Tensor, iou_threshold: float, keep_n: int = -1) -> torch.Tensor:
    """int8 [N], 1 for the boxes kept of x (N, 4) = (x1, y1, x2, y2) sorted best first: a kept box removes
    later ones whose overlap with it is above iou_threshold; at most keep_n are kept (below 0: all).

    RuntimeError for boxes of another shape.
    """
    if x.ndim != 2 or x.shape[1] != 4:
        raise RuntimeError(f"nms: boxes must be (N, 4), found {tuple(x.shape)}")
    keep_n = keep_n if keep_n > 0 else -1
    if _ext.use(x, dtypes=_ext.WIDE):
        return kernels.run.nms_mask(x, iou_threshold, keep_n)
    return nms_mask_ref(x, iou_threshold, keep_n)


@torch.no_grad()
def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Indices (int64) of the boxes kept, best score first. boxes (N, 4) = (x1, y1, x2, y2), scores (N,).

    RuntimeError unless there is one score for each box.
    """
    if scores.shape != boxes.shape[:1]:
        raise RuntimeError(
            f"nms: one score a box, found boxes {tuple(boxes.shape)} and scores {tuple(scores.shape)}"
        )
    order = torch.argsort(scores, dim=0, descending=True, stable=True)
    return order[nms_mask(boxes[order], iou_threshold).bool()]


_MAX_POINTS = 2**31  # the same as kMaxPoints of csrc/cpu/detection.cpp


def _axis_points(
    start: torch.Tensor, length: torch.Tensor, bins: int, sampling_ratio: int, size: int
) -> tuple[int, torch.Tensor, torch.Tensor]:
    """(points a bin, their positions in the image, the bin of each) along one axis; see axis_points of
    csrc/cpu/detection.cpp.
    """
    needed = math.ceil(length / bins) if math.isfinite(length) else 0
    a_bin = sampling_ratio if sampling_ratio > 0 else needed if needed > 0 and length <= _MAX_POINTS else 0
    step = length / (bins * max(a_bin, 1))
    if not a_bin or not size or not math.isfinite(start) or not math.isfinite(step):
        return a_bin, start.new_empty(0), torch.empty(0, dtype=torch.int64, device=start.device)
    ends = sorted(((edge - float(start)) / float(step) for edge in (-1, size)) if step else (0, bins * a_bin))
    # positions are rounded
    margin = 2 + 4 * torch.finfo(start.dtype).eps * abs(float(start) / float(step)) if step else 0
    begin, last = (min(max(int(end + side * margin), 0), bins * a_bin) for end, side in zip(ends, (-1, 1)))
    points = torch.arange(begin, last, device=start.device)
    positions = start + (points.to(start.dtype) + 0.5) * step
    inside = (positions >= -1) & (positions <= size)
    return a_bin, positions[inside], points[inside] // a_bin


def roi_align_ref(
    x: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    out = []
    for row, roi in enumerate(rois.unbind(0)):
        if not -1 < roi[0] < x.shape[0]:
            raise RuntimeError(
                f"roi_align: rois must name one of the {x.shape[0]} images in column 0, found"
                f" {float(roi[0]):g} in row {row}"
            )
        x1, y1, x2, y2 = (roi[1:] * spatial_scale - (0.5 if aligned else 0.0)).unbind()
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = width.clamp_min(1), height.clamp_min(1)
        rows, ys, row_bins = _axis_points(y1, height, pooled_h, sampling_ratio, x.shape[2])
        columns, xs, column_bins = _axis_points(x1, width, pooled_w, sampling_ratio, x.shape[3])
        value = references.bilinear(
            x[int(roi[0])][None],
            ys[None, :, None].expand(1, -1, xs.numel()),
            xs[None, None].expand(1, ys.numel(), -1),
            False,
        )[0]
        sums = value.new_zeros(x.shape[1], pooled_h, xs.numel()).index_add(1, row_bins, value)
        sums = value.new_zeros(x.shape[1], pooled_h, pooled_w).index_add(2, column_bins, sums)
        out.append(sums / max(rows * columns, 1))
    return torch.stack(out) if out else x.new_zeros(0, x.shape[1], pooled_h, pooled_w)


def roi_align(
    x: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    """Regions of x (N, C, H, W) resampled to (R, C, pooled_h, pooled_w). rois (R, 5) = (image index, x1, y1,
    x2, y2).

    sampling_ratio <= 0 takes ceil(region / pooled) points a bin; only those in the image are computed, so a
    region of any size takes no longer than the image. A point outside counts as 0, as does a region whose
    coordinates are not finite. `aligned` shifts by half a pixel. Gradient to x only.

    RuntimeError for x or rois of another shape.
    """
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError(
            f"roi_align: x must be (N, C, H, W) and rois (R, 5), found {tuple(x.shape)} and"
            f" {tuple(rois.shape)}"
        )
    rois = rois.detach().to(x.dtype)
    if _ext.use(x, rois, dtypes=_ext.WIDE) and not _ext.needs_deterministic_gradient(x):
        return kernels.run.roi_align(x, rois, spatial_scale, pooled_h, pooled_w, sampling_ratio, aligned)
    return roi_align_ref(x, rois, spatial_scale, pooled_h, pooled_w, sampling_ratio, aligned)


def _need_geometry(input: torch.Tensor, weight: torch.Tensor, steps: Sequence[int]) -> None:
    """Raise RuntimeError unless the image and the kernel have four dimensions and strides and dilations are
    at least 1.
    """
    if input.dim() != 4 or weight.dim() != 4:
        raise RuntimeError(
            f"deform_conv2d: input and weight must have 4 dimensions, found {tuple(input.shape)} and"
            f" {tuple(weight.shape)}"
        )
    if min(steps) < 1:
        raise RuntimeError(f"deform_conv2d: stride and dilation must be at least 1, found {steps}")


def raw_deform_conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    dilation_h: int = 1,
    dilation_w: int = 1,
    groups: int = 1,
    offset_groups: int = 1,
    use_mask: bool = False,
) -> torch.Tensor:
    """Convolution whose kernel points are moved by `offset` (N, 2 * offset_groups * kh * kw, oh, ow; y before
    x) and weighted by `mask` (N, offset_groups * kh * kw, oh, ow). input (N, C, H, W), weight (O, C / groups,
    kh, kw).

    RuntimeError if the shapes of input, weight, offset and mask do not fit each other.
    """
    name = "deform_conv2d"
    _need_geometry(input, weight, (stride_h, stride_w, dilation_h, dilation_w))
    out_c, _, kh, kw = weight.shape
    if input.shape[1] != weight.shape[1] * groups:
        raise RuntimeError(
            f"{name}: {input.shape[1]} input channels do not fit a weight {tuple(weight.shape)} with"
            f" groups={groups}"
        )
    oh = (input.shape[2] + 2 * pad_h - dilation_h * (kh - 1) - 1) // stride_h + 1
    ow = (input.shape[3] + 2 * pad_w - dilation_w * (kw - 1) - 1) // stride_w + 1
    expected = (input.shape[0], 2 * offset_groups * kh * kw, oh, ow)
    if tuple(offset.shape) != expected:
        raise RuntimeError(f"{name}: offset must be {expected}, found {tuple(offset.shape)}")
    mask = _check.needed(name, "mask", mask) if use_mask else None
    if mask is not None and tuple(mask.shape) != (expected[0], expected[1] // 2, oh, ow):
        raise RuntimeError(
            f"{name}: mask must be {(expected[0], expected[1] // 2, oh, ow)}, found {tuple(mask.shape)}"
        )
    how = [kh, kw], [stride_h, stride_w], [pad_h, pad_w], [dilation_h, dilation_w], offset_groups
    if _ext.use(input, offset, mask, dtypes=_ext.WIDE) and not _ext.needs_deterministic_gradient(
        input, offset, mask
    ):
        columns = kernels.run.deform_columns(input, offset, mask, *how)
    else:
        columns = references.deform_columns_ref(input, offset, mask, *how)
    columns = columns.reshape(input.shape[0], groups, weight[0].numel(), oh * ow)
    out = torch.matmul(weight.reshape(groups, out_c // groups, -1), columns).reshape(
        input.shape[0], out_c, oh, ow
    )
    return out if bias is None else out + _check.along(bias, 1, 4)


def deform_conv2d(
    input: torch.Tensor,
    offset: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """raw_deform_conv2d with groups and offset groups read off the shapes, as
    torchvision.ops.deform_conv2d.

    RuntimeError if offset or input do not fit the weight.
    """
    pair = lambda v: (v, v) if isinstance(v, int) else tuple(v)
    (sh, sw), (ph, pw), (dh, dw) = pair(stride), pair(padding), pair(dilation)
    _need_geometry(input, weight, (sh, sw, dh, dw))
    points = 2 * weight.shape[2] * weight.shape[3]
    if offset.shape[1] == 0 or offset.shape[1] % points or input.shape[1] % weight.shape[1]:
        raise RuntimeError(
            f"deform_conv2d: offset {tuple(offset.shape)} must have a multiple of {points} channels and the"
            f" input {tuple(input.shape)} a multiple of {weight.shape[1]}"
        )
    return raw_deform_conv2d(
        input,
        weight,
        offset,
        mask,
        bias,
        sh,
        sw,
        ph,
        pw,
        dh,
        dw,
        input.shape[1] // weight.shape[1],
        offset.shape[1] // points,
        mask is not None,
    )
