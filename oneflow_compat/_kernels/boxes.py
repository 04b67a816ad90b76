"""The steps of YOLOv5's CIoU loss: box corners, overlap, distances. All elementwise, all differentiable."""

from __future__ import annotations

import math

import torch

from . import _ext, kernels

__all__ = [
    "fused_get_boundding_boxes_coord",
    "fused_get_center_dist",
    "fused_get_ciou_diagonal_angle",
    "fused_get_ciou_result",
    "fused_get_convex_diagonal_squared",
    "fused_get_intersection_area",
    "fused_get_iou",
]


def coord_ref(x1, y1, w1, h1, x2, y2, w2, h2):
    w1, h1, w2, h2 = w1 / 2, h1 / 2, w2 / 2, h2 / 2
    return x1 - w1, x1 + w1, y1 - h1, y1 + h1, x2 - w2, x2 + w2, y2 - h2, y2 + h2


def intersection_ref(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2):
    width = (torch.minimum(b1_x2, b2_x2) - torch.maximum(b1_x1, b2_x1)).clamp_min(0)
    return width * (torch.minimum(b1_y2, b2_y2) - torch.maximum(b1_y1, b2_y1)).clamp_min(0)


def iou_ref(w1, h1, w2, h2, inter, eps):
    return inter / (w1 * h1 + w2 * h2 - inter + eps)


def convex_ref(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2, eps):
    width = torch.maximum(b1_x2, b2_x2) - torch.minimum(b1_x1, b2_x1)
    height = torch.maximum(b1_y2, b2_y2) - torch.minimum(b1_y1, b2_y1)
    return width.square() + height.square() + eps


def center_dist_ref(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2):
    return ((b2_x1 + b2_x2 - b1_x1 - b1_x2).square() + (b2_y1 + b2_y2 - b1_y1 - b1_y2).square()) / 4


def angle_ref(w1, h1, w2, h2, eps):
    return (4 / math.pi**2) * (torch.atan(w2 / (h2 + eps)) - torch.atan(w1 / (h1 + eps))).square()


def ciou_ref(v, iou, rho2, c2, eps):
    with torch.no_grad():
        alpha = v / (v - iou + (1 + eps))
    return iou - (rho2 / c2 + v * alpha), alpha


def fused_get_boundding_boxes_coord(x1, y1, w1, h1, x2, y2, w2, h2):
    """Corners of two lists of boxes from centre and size: (b1_x1, b1_x2, b1_y1, b1_y2, b2_x1, b2_x2, b2_y1,
    b2_y2).
    """
    inputs = (x1, y1, w1, h1, x2, y2, w2, h2)
    return tuple(kernels.point("boxes_coord", inputs, 8)) if _ext.use(*inputs) else coord_ref(*inputs)


def fused_get_intersection_area(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2):
    """Area of the overlap of the boxes, 0 where they are apart."""
    inputs = (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2)
    return kernels.point("intersection", inputs, 1)[0] if _ext.use(*inputs) else intersection_ref(*inputs)


def fused_get_iou(w1, h1, w2, h2, inter, eps):
    """Intersection over union: inter / (w1 h1 + w2 h2 - inter + eps)."""
    inputs = (w1, h1, w2, h2, inter)
    return kernels.point("iou", inputs, 1, (eps,))[0] if _ext.use(*inputs) else iou_ref(*inputs, eps)


def fused_get_convex_diagonal_squared(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2, eps):
    """Squared diagonal of the smallest box around both, plus eps."""
    inputs = (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2)
    return kernels.point("convex", inputs, 1, (eps,))[0] if _ext.use(*inputs) else convex_ref(*inputs, eps)


def fused_get_center_dist(b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2):
    """Squared distance of the centres."""
    inputs = (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2)
    return kernels.point("center_dist", inputs, 1)[0] if _ext.use(*inputs) else center_dist_ref(*inputs)


def fused_get_ciou_diagonal_angle(w1, h1, w2, h2, eps):
    """The aspect term v = 4/pi^2 (atan(w2 / (h2 + eps)) - atan(w1 / (h1 + eps)))^2."""
    inputs = (w1, h1, w2, h2)
    return kernels.point("angle", inputs, 1, (eps,))[0] if _ext.use(*inputs) else angle_ref(*inputs, eps)


def fused_get_ciou_result(v, iou, rho2, c2, eps):
    """(iou - (rho2 / c2 + v alpha), alpha) with alpha = v / (v - iou + 1 + eps); no gradient goes through
    alpha.
    """
    inputs = (v, iou, rho2, c2)
    if _ext.use(*inputs):
        y, alpha = kernels.point("ciou", inputs, 2, (eps,))
        return y, alpha.detach()
    return ciou_ref(*inputs, eps)
