"""The operators with a kernel: inputs, the public call, and the plain-torch reference. Shared by the tests
and the benchmark.

make(dtype, n) -> inputs; floating-point inputs get gradients. `n` scales the size. call(*inputs) and
plain(*inputs) return a tensor or a tuple.
"""

from dataclasses import dataclass
from typing import Callable

import torch

import oneflow
from oneflow._kernels import (
    activation,
    detection,
    embedding,
    losses,
    quantization,
    references,
    rotary,
    softmax,
)

C = oneflow._C


@dataclass(frozen=True)
class Op:
    name: str
    make: Callable
    call: Callable
    plain: Callable
    dtypes: tuple = (torch.float32, torch.float64, torch.bfloat16)
    differentiable: bool = True
    again: bool = True  # has a second derivative
    whole: bool = True  # the gradient is the derivative of the output (not where a part is held constant)


def rand(*shape, dtype, low=-1.0, high=1.0):
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high).to(dtype)


def _corners(dtype, n):
    """Two lists of boxes as 8 corner tensors (b1_x1, b1_x2, b2_x1, b2_x2, b1_y1, ...)."""
    starts = [rand(n, dtype=dtype, low=0, high=1) for _ in range(4)]
    ends = [s + rand(n, dtype=dtype, low=0.2, high=2) for s in starts]
    (a, b, c, d), (e, f, g, h) = starts, ends
    return a, e, b, f, c, g, d, h


def _sizes(dtype, n, count):
    return tuple(rand(n, dtype=dtype, low=0.3, high=2) for _ in range(count))


def _mask(n):
    return torch.rand(2, 1, n, n) > 0.3


def _rotary(x, cos, sin, mode):
    heads = x.permute(0, 2, 1, 3)
    out = rotary.rotate_ref(heads.to(cos.dtype), cos[None], sin[None], mode)
    return out.permute(0, 2, 1, 3).to(x.dtype)


def _rotary_inputs(dtype, n):
    cos, sin = rotary.angles(8, torch.arange(n), 1e4, "plane", torch.promote_types(dtype, torch.float32))
    return rand(2, 3, n, 16, dtype=dtype), cos, sin


def _rois(n):
    images, at, size = torch.randint(0, 2, (n, 1)), torch.rand(n, 2) * 8, torch.rand(n, 2) * 8
    return torch.cat((images, at, at + size), 1)


def _deform_inputs(dtype, n):
    return (
        rand(2, 4, n, n + 1, dtype=dtype),
        rand(4, 2, 3, 3, dtype=dtype),
        rand(2, 36, n, n + 1, dtype=dtype, low=-1.5, high=1.5),
        rand(2, 18, n, n + 1, dtype=dtype, low=0.1, high=1),
    )


def _deform_plain(x, weight, offset, mask):
    columns = references.deform_columns_ref(x, offset, mask, (3, 3), (1, 1), (1, 1), (1, 1), 2).reshape(
        x.shape[0], 2, -1, x.shape[2] * x.shape[3]
    )
    return torch.matmul(weight.reshape(2, weight.shape[0] // 2, -1), columns).reshape(
        x.shape[0], -1, *x.shape[2:]
    )


WIDE = (torch.float32, torch.float64)
OPS = [
    Op(
        "fused_bias_add_gelu",
        lambda d, n: (rand(n, 2 * n, dtype=d), rand(2 * n, dtype=d)),
        lambda x, b: C.fused_bias_add_gelu(x, b, axis=1),
        lambda x, b: references.fused_bias_add_gelu_ref(x, b, 1),
    ),
    Op(
        "fused_bias_add_gelu axis 1 of 3",
        lambda d, n: (rand(2, n, 7, dtype=d), rand(n, dtype=d)),
        lambda x, b: C.fused_bias_add_gelu(x, b, axis=1),
        lambda x, b: references.fused_bias_add_gelu_ref(x, b, 1),
    ),
    Op(
        "quick_gelu",
        lambda d, n: (rand(n, n, dtype=d, low=-4, high=4),),
        activation.quick_gelu,
        references.quick_gelu_ref,
    ),
    Op(
        "square_relu", lambda d, n: (rand(n, n, dtype=d),), activation.square_relu, references.square_relu_ref
    ),
    Op(
        "fused_fast_gelu_mul",
        lambda d, n: (rand(n, n, dtype=d, low=-3, high=3), rand(n, n, dtype=d)),
        C.fused_fast_gelu_mul,
        references.fused_fast_gelu_mul_ref,
    ),
    Op(
        "fused_scale_mask_softmax",
        lambda d, n: (rand(2, 3, n, n, dtype=d), _mask(n)),
        lambda x, m: C.fused_scale_mask_softmax(x, m, fill_value=-100.0, scale=1.5),
        lambda x, m: softmax.fused_scale_mask_softmax_ref(x, m, -100.0, 1.5),
    ),
    Op(
        "fused_scale_tril",
        lambda d, n: (rand(2, n, n + 1, dtype=d),),
        lambda x: C.fused_scale_tril(x, 1, -2.0, 0.5),
        lambda x: softmax.fused_scale_tril_ref(x, 1, -2.0, 0.5),
    ),
    Op(
        "fused_scale_tril_softmax_mask_scale p 0",
        lambda d, n: (rand(2, n, n, dtype=d),),
        lambda x: C.fused_scale_tril_softmax_mask_scale(
            x, p=0.0, diagonal=0, tril_scale_value=2.0, tril_fill_value=-50.0
        )[1],
        lambda x: torch.softmax(softmax.fused_scale_tril_ref(x, 0, -50.0, 2.0), -1),
    ),
    Op(
        "fused_apply_rotary_emb plane",
        _rotary_inputs,
        lambda x, c, s: C.fused_apply_rotary_emb(x, cos=c, sin=s, rotary_size=8),
        lambda x, c, s: _rotary(x, c, s, "plane"),
        again=False,
    ),
    Op(
        "fused_apply_rotary_emb interval",
        _rotary_inputs,
        lambda x, c, s: C.fused_apply_rotary_emb(x, cos=c, sin=s, rotary_size=8, mode="interval"),
        lambda x, c, s: _rotary(x, c, s, "interval"),
        again=False,
    ),
    Op(
        "fused_dot_feature_interaction",
        lambda d, n: (rand(n, 5, 19, dtype=d),),
        lambda x: C.fused_dot_feature_interaction([x]),
        lambda x: references.fused_dot_feature_interaction_ref(x, None, False, 0),
    ),
    Op(
        "fused_dot_feature_interaction self",
        lambda d, n: (rand(3, n, 16, dtype=d),),
        lambda x: C.fused_dot_feature_interaction([x], self_interaction=True),
        lambda x: references.fused_dot_feature_interaction_ref(x, None, True, 0),
    ),
    Op(
        "fused_get_boundding_boxes_coord",
        lambda d, n: _sizes(d, n, 8),
        C.fused_get_boundding_boxes_coord,
        references.coord_ref,
        again=False,
    ),
    Op("fused_get_intersection_area", _corners, C.fused_get_intersection_area, references.intersection_ref),
    Op(
        "fused_get_iou",
        lambda d, n: _sizes(d, n, 5),
        lambda *x: C.fused_get_iou(*x, 1e-7),
        lambda *x: references.iou_ref(*x, 1e-7),
    ),
    Op(
        "fused_get_convex_diagonal_squared",
        _corners,
        lambda *x: C.fused_get_convex_diagonal_squared(*x, 1e-7),
        lambda *x: references.convex_ref(*x, 1e-7),
    ),
    Op("fused_get_center_dist", _corners, C.fused_get_center_dist, references.center_dist_ref),
    Op(
        "fused_get_ciou_diagonal_angle",
        lambda d, n: _sizes(d, n, 4),
        lambda *x: C.fused_get_ciou_diagonal_angle(*x, 1e-7),
        lambda *x: references.angle_ref(*x, 1e-7),
    ),
    Op(
        "fused_get_ciou_result",
        lambda d, n: _sizes(d, n, 4),
        lambda *x: C.fused_get_ciou_result(*x, 1e-7)[0],
        lambda *x: references.ciou_ref(*x, 1e-7)[0],
        whole=False,
    ),
    Op(
        "fake_quantization",
        lambda d, n: (rand(n, n, dtype=d), torch.tensor([0.01]), torch.tensor([3.0])),
        lambda x, s, z: C.fake_quantization(x, s, z, "google", 8, "affine"),
        lambda x, s, z: (
            (torch.round(x / s.to(x.dtype) + z.to(x.dtype)).clamp(0, 255) - z.to(x.dtype)) * s.to(x.dtype)
        ),
        dtypes=WIDE,
        differentiable=False,
    ),
    Op(
        "roi_align",
        lambda d, n: (rand(2, 3, 9, 10, dtype=d), _rois(n).to(d)),
        lambda x, r: C.roi_align(x, r, 0.7, 3, 2, -1, True),
        lambda x, r: detection.roi_align_ref(x, r.detach(), 0.7, 3, 2, -1, True),
        dtypes=WIDE,
        again=False,
    ),
    Op(
        "roi_align fixed",
        lambda d, n: (rand(2, 3, 9, 10, dtype=d), _rois(n).to(d)),
        lambda x, r: C.roi_align(x, r, 0.5, 2, 3, 2, False),
        lambda x, r: detection.roi_align_ref(x, r.detach(), 0.5, 2, 3, 2, False),
        dtypes=WIDE,
        again=False,
    ),
    Op(
        "deform_conv2d",
        _deform_inputs,
        lambda x, w, o, m: C.deform_conv2d(x, w, o, m, None, 1, 1, 1, 1, 1, 1, 2, 2, True),
        _deform_plain,
        dtypes=WIDE,
    ),
    Op(
        "nms",
        lambda d, n: (
            torch.cat((p := rand(n, 2, dtype=d, low=0, high=4), p + rand(n, 2, dtype=d, low=0.5, high=3)), 1),
        ),
        lambda b: C.nms(b, 0.4, 7),
        lambda b: detection.nms_mask_ref(b, 0.4, 7),
        dtypes=WIDE,
        differentiable=False,
    ),
    Op(
        "ctc_greedy_decoder",
        lambda d, n: (rand(n, 3, 5, dtype=d), torch.tensor([n, max(n - 2, 0), 1 if n else 0])),
        C.ctc_greedy_decoder,
        lambda x, length: losses.ctc_greedy_decoder_ref(x, length, True),
        dtypes=WIDE,
        differentiable=False,
    ),
]
__all__ = ["OPS", "Op", "embedding", "quantization", "rand"]
