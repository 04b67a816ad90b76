"""The steps of YOLOv5's CIoU loss: box corners, overlap, distances. All elementwise, all differentiable."""

from __future__ import annotations

from torch import Tensor

from . import _ext, kernels, references

__all__ = [
    "fused_get_boundding_boxes_coord",
    "fused_get_center_dist",
    "fused_get_ciou_diagonal_angle",
    "fused_get_ciou_result",
    "fused_get_convex_diagonal_squared",
    "fused_get_intersection_area",
    "fused_get_iou",
]


def fused_get_boundding_boxes_coord(
    x1: Tensor, y1: Tensor, w1: Tensor, h1: Tensor, x2: Tensor, y2: Tensor, w2: Tensor, h2: Tensor
) -> tuple[Tensor, ...]:
    """Corners of two lists of boxes from centre and size: (b1_x1, b1_x2, b1_y1, b1_y2, b2_x1, b2_x2, b2_y1,
    b2_y2).
    """
    inputs = (x1, y1, w1, h1, x2, y2, w2, h2)
    return (
        tuple(kernels.point("boxes_coord", inputs, 8)) if _ext.use(*inputs) else references.coord_ref(*inputs)
    )


def fused_get_intersection_area(
    b1_x1: Tensor,
    b1_x2: Tensor,
    b2_x1: Tensor,
    b2_x2: Tensor,
    b1_y1: Tensor,
    b1_y2: Tensor,
    b2_y1: Tensor,
    b2_y2: Tensor,
) -> Tensor:
    """Area of the overlap of the boxes, 0 where they are apart."""
    inputs = (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2)
    return (
        kernels.point("intersection", inputs, 1)[0]
        if _ext.use(*inputs)
        else references.intersection_ref(*inputs)
    )


def fused_get_iou(w1: Tensor, h1: Tensor, w2: Tensor, h2: Tensor, inter: Tensor, eps: float) -> Tensor:
    """Intersection over union: inter / (w1 h1 + w2 h2 - inter + eps)."""
    inputs = (w1, h1, w2, h2, inter)
    return (
        kernels.point("iou", inputs, 1, (eps,))[0] if _ext.use(*inputs) else references.iou_ref(*inputs, eps)
    )


def fused_get_convex_diagonal_squared(
    b1_x1: Tensor,
    b1_x2: Tensor,
    b2_x1: Tensor,
    b2_x2: Tensor,
    b1_y1: Tensor,
    b1_y2: Tensor,
    b2_y1: Tensor,
    b2_y2: Tensor,
    eps: float,
) -> Tensor:
    """Squared diagonal of the smallest box around both, plus eps."""
    inputs = (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2)
    return (
        kernels.point("convex", inputs, 1, (eps,))[0]
        if _ext.use(*inputs)
        else references.convex_ref(*inputs, eps)
    )


def fused_get_center_dist(
    b1_x1: Tensor,
    b1_x2: Tensor,
    b2_x1: Tensor,
    b2_x2: Tensor,
    b1_y1: Tensor,
    b1_y2: Tensor,
    b2_y1: Tensor,
    b2_y2: Tensor,
) -> Tensor:
    """Squared distance of the centres."""
    inputs = (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2)
    return (
        kernels.point("center_dist", inputs, 1)[0]
        if _ext.use(*inputs)
        else references.center_dist_ref(*inputs)
    )


def fused_get_ciou_diagonal_angle(w1: Tensor, h1: Tensor, w2: Tensor, h2: Tensor, eps: float) -> Tensor:
    """The aspect term v = 4/pi^2 (atan(w2 / (h2 + eps)) - atan(w1 / (h1 + eps)))^2."""
    inputs = (w1, h1, w2, h2)
    return (
        kernels.point("angle", inputs, 1, (eps,))[0]
        if _ext.use(*inputs)
        else references.angle_ref(*inputs, eps)
    )


def fused_get_ciou_result(
    v: Tensor, iou: Tensor, rho2: Tensor, c2: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """(iou - (rho2 / c2 + v alpha), alpha) with alpha = v / (v - iou + 1 + eps); no gradient goes through
    alpha.
    """
    inputs = (v, iou, rho2, c2)
    if _ext.use(*inputs):
        y, alpha = kernels.point("ciou", inputs, 2, (eps,))
        return y, alpha.detach()
    return references.ciou_ref(*inputs, eps)
