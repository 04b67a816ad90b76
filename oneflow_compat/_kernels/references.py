"""Plain-torch meanings of the operators whose gradients can be differentiated again.

The registered gradients (`gradients.py`) run them under autograd when a caller asks for create_graph=True.
The public functions run them when no kernel applies. Other `*_ref` functions are beside their function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _check


# --------------------------------------------------------------------------- activations
def fused_bias_add_gelu_ref(a: Tensor, b: Tensor, axis: int) -> Tensor:
    return F.gelu(a + _check.along(b, axis, a.ndim))


def fused_fast_gelu_mul_ref(x: Tensor, multiplier: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh") * multiplier


def quick_gelu_ref(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def square_relu_ref(x: Tensor) -> Tensor:
    return torch.relu(x).square()


# --------------------------------------------------------------------------- boxes
def coord_ref(
    x1: Tensor, y1: Tensor, w1: Tensor, h1: Tensor, x2: Tensor, y2: Tensor, w2: Tensor, h2: Tensor
) -> tuple[Tensor, ...]:
    w1, h1, w2, h2 = w1 / 2, h1 / 2, w2 / 2, h2 / 2
    return x1 - w1, x1 + w1, y1 - h1, y1 + h1, x2 - w2, x2 + w2, y2 - h2, y2 + h2


def intersection_ref(*corners: Tensor) -> Tensor:
    b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2 = corners
    width = (torch.minimum(b1_x2, b2_x2) - torch.maximum(b1_x1, b2_x1)).clamp_min(0)
    return width * (torch.minimum(b1_y2, b2_y2) - torch.maximum(b1_y1, b2_y1)).clamp_min(0)


def iou_ref(w1: Tensor, h1: Tensor, w2: Tensor, h2: Tensor, inter: Tensor, eps: float) -> Tensor:
    return inter / (w1 * h1 + w2 * h2 - inter + eps)


def convex_ref(
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
    width = torch.maximum(b1_x2, b2_x2) - torch.minimum(b1_x1, b2_x1)
    height = torch.maximum(b1_y2, b2_y2) - torch.minimum(b1_y1, b2_y1)
    return width.square() + height.square() + eps


def center_dist_ref(*corners: Tensor) -> Tensor:
    b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, b1_y2, b2_y1, b2_y2 = corners
    return ((b2_x1 + b2_x2 - b1_x1 - b1_x2).square() + (b2_y1 + b2_y2 - b1_y1 - b1_y2).square()) / 4


def angle_ref(w1: Tensor, h1: Tensor, w2: Tensor, h2: Tensor, eps: float) -> Tensor:
    return (4 / math.pi**2) * (torch.atan(w2 / (h2 + eps)) - torch.atan(w1 / (h1 + eps))).square()


def ciou_ref(v: Tensor, iou: Tensor, rho2: Tensor, c2: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        alpha = v / (v - iou + (1 + eps))
    return iou - (rho2 / c2 + v * alpha), alpha


# --------------------------------------------------------------------------- feature interactions
def fused_dot_feature_interaction_ref(
    x: Tensor, output_concat: Tensor | None, self_interaction: bool, output_padding: int
) -> Tensor:
    """x (B, F, E): [output_concat | lower triangle of x @ x^T | zeros]."""
    dots = torch.bmm(x, x.mT)
    rows, columns = torch.tril_indices(x.shape[1], x.shape[1], 0 if self_interaction else -1, device=x.device)
    return join_features(dots[:, rows, columns], x, output_concat, output_padding)


def join_features(dots: Tensor, x: Tensor, output_concat: Tensor | None, output_padding: int) -> Tensor:
    parts = [dots]
    if output_concat is not None:
        parts.insert(0, output_concat)
    if output_padding:
        parts.append(x.new_zeros(x.shape[0], output_padding))
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0]


# --------------------------------------------------------------------------- sampling of images
def bilinear(planes: Tensor, y: Tensor, x: Tensor, zero_outside: bool) -> Tensor:
    """planes (P, C, H, W) sampled at y, x (P, ...) -> (P, C, ...). Outside [-1, H] x [-1, W] the value is 0.

    zero_outside: neighbours beyond the border count as 0 (deform_conv2d); else the point is moved inside
    (roi_align).
    """
    height, width = planes.shape[-2:]
    shape = y.shape[1:]
    if not height or not width:
        return planes.new_zeros(*planes.shape[:2], *shape) + planes.sum()  # 0, with a gradient of no elements
    valid = (
        (y > -1) & (y < height) & (x > -1) & (x < width)
        if zero_outside
        else (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    )
    y, x = torch.where(valid, y, 0), torch.where(valid, x, 0)  # infinity times a weight of 0 would be NaN
    if not zero_outside:
        y, x = y.clamp_min(0), x.clamp_min(0)
    y0, x0 = y.floor(), x.floor()
    if not zero_outside:
        top, left = y0 >= height - 1, x0 >= width - 1
        y0, x0 = y0.clamp_max(height - 1), x0.clamp_max(width - 1)
        y, x = torch.where(top, y0, y), torch.where(left, x0, x)
    flat = planes.flatten(2)

    def take(row: Tensor, column: Tensor) -> Tensor:
        inside = valid & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        at = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
        value = flat.gather(2, at.flatten(1).unsqueeze(1).expand(-1, planes.shape[1], -1)).unflatten(2, shape)
        # not a product: the pixel in its place may be infinite
        return torch.where(inside.unsqueeze(1), value, 0)

    y1 = y0 + 1 if zero_outside else (y0 + 1).clamp_max(height - 1)
    x1 = x0 + 1 if zero_outside else (x0 + 1).clamp_max(width - 1)
    wy, wx = (y - y0).unsqueeze(1), (x - x0).unsqueeze(1)
    return (
        take(y0, x0) * ((1 - wy) * (1 - wx))
        + take(y0, x1) * ((1 - wy) * wx)
        + take(y1, x0) * (wy * (1 - wx))
        + take(y1, x1) * (wy * wx)
    )


def deform_columns_ref(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    offset_groups: int,
) -> Tensor:
    """(N, C, kh * kw, oh, ow): input sampled at the kernel's points moved by offset, times mask."""
    n, c, height, width = input.shape
    kh, kw = kernel
    oh, ow = offset.shape[-2:]
    like: dict[str, Any] = {"dtype": input.dtype, "device": input.device}
    ky = (torch.arange(kh, **like) * dilation[0]).repeat_interleave(kw).reshape(-1, 1, 1)
    kx = (torch.arange(kw, **like) * dilation[1]).repeat(kh).reshape(-1, 1, 1)
    y = torch.arange(oh, **like).reshape(1, -1, 1) * stride[0] - padding[0] + ky
    x = torch.arange(ow, **like).reshape(1, 1, -1) * stride[1] - padding[1] + kx
    offset = offset.reshape(n * offset_groups, kh * kw, 2, oh, ow)
    planes = input.reshape(n * offset_groups, c // offset_groups, height, width)
    columns = bilinear(planes, y + offset[:, :, 0], x + offset[:, :, 1], True)
    if mask is not None:
        columns = columns * mask.reshape(n * offset_groups, 1, kh * kw, oh, ow)
    return columns.reshape(n, c, kh * kw, oh, ow)
