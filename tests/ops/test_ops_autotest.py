"""OneFlow-style tests (oneflow_autotest) of the custom operators against their torch compositions: random
shapes, gradients, graph.
"""

import unittest

import torch as plain_torch

import oneflow as flow
import oneflow.unittest
from oneflow._kernels import detection, losses, references, rotary, softmax
from oneflow.test_utils.automated_test_util import *

C, F = flow._C, plain_torch.nn.functional


def pair(name, ours, composition):
    """One function of the dual kind: the composition on torch's side, the operator on oneflow's."""
    return type(torch)(torch._pair, composition, ours, name)


bias_gelu = pair(
    "fused_bias_add_gelu",
    lambda x, b: C.fused_bias_add_gelu(x, b, axis=1),
    lambda x, b: references.fused_bias_add_gelu_ref(x, b, 1),
)
quick_gelu = pair("quick_gelu", C.quick_gelu, references.quick_gelu_ref)
square_relu = pair("square_relu", C.square_relu, references.square_relu_ref)
fast_gelu = pair("fast_gelu", C.fast_gelu, lambda x: F.gelu(x, approximate="tanh"))
fast_gelu_mul = pair("fused_fast_gelu_mul", C.fused_fast_gelu_mul, references.fused_fast_gelu_mul_ref)
mask_softmax = pair(
    "fused_scale_mask_softmax",
    lambda x, m: C.fused_scale_mask_softmax(x, m > 0, fill_value=-9.0, scale=0.5),
    lambda x, m: softmax.fused_scale_mask_softmax_ref(x, m > 0, -9.0, 0.5),
)
tril = pair(
    "fused_scale_tril",
    lambda x: C.fused_scale_tril(x, 1, -2.0, 0.5),
    lambda x: softmax.fused_scale_tril_ref(x, 1, -2.0, 0.5),
)
tril_softmax = pair(
    "fused_scale_tril_softmax_mask_scale",
    lambda x: C.fused_scale_tril_softmax_mask_scale(
        x, p=0.0, diagonal=0, tril_scale_value=2.0, tril_fill_value=-50.0
    )[0],
    lambda x: plain_torch.softmax(softmax.fused_scale_tril_ref(x, 0, -50.0, 2.0), -1),
)
dots = pair(
    "fused_dot_feature_interaction",
    lambda x: C.fused_dot_feature_interaction([x], self_interaction=True),
    lambda x: references.fused_dot_feature_interaction_ref(x, None, True, 0),
)
cross = pair(
    "fused_cross_feature_interaction",
    lambda x, w, x0, b: C.fused_cross_feature_interaction(x, w, x0, b, "matrix"),
    lambda x, w, x0, b: x0 * (x @ w.mT + b) + x,
)
glu = pair(
    "fused_glu",
    lambda x, w, b: C.fused_glu(x, w, b, activation="silu"),
    lambda x, w, b: (lambda a, g: a * F.silu(g))(*F.linear(x, w, b).chunk(2, -1)),
)
rms = pair(
    "rms_norm",
    lambda x, w: C.rms_norm(x, w, w.shape, 1e-5),
    lambda x, w: x * plain_torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w,
)
skip_norm = pair(
    "skip_layer_norm",
    lambda x, w, s: C.skip_layer_norm(x, gamma=w, skip=s, alpha=2.0),
    lambda x, w, s: F.layer_norm(x + 2 * s, x.shape[-1:], w),
)
turn = pair(
    "fused_apply_rotary_emb",
    lambda x: C.fused_apply_rotary_emb(x, x_layout="BMHK", base=100.0),
    lambda x: rotary.rotate_ref(
        x,
        *(
            t[None]
            for t in rotary.angles(x.shape[-1], plain_torch.arange(x.shape[1]), 100.0, "plane", x.dtype)
        ),
        "plane",
    ),
)
iou = pair("fused_get_iou", lambda *x: C.fused_get_iou(*x, 1e-7), lambda *x: references.iou_ref(*x, 1e-7))
center = pair("fused_get_center_dist", C.fused_get_center_dist, references.center_dist_ref)
angle = pair(
    "fused_get_ciou_diagonal_angle",
    lambda *x: C.fused_get_ciou_diagonal_angle(*x, 1e-7),
    lambda *x: references.angle_ref(*x, 1e-7),
)
pool = pair(
    "roi_align",
    lambda x: C.roi_align(x, plain_torch.tensor([[0.0, 1, 0, 4, 3], [1, 0, 1, 3, 4]]), 1.0, 2, 3, 2, True),
    lambda x: detection.roi_align_ref(
        x, plain_torch.tensor([[0.0, 1, 0, 4, 3], [1, 0, 1, 3, 4]]), 1.0, 2, 3, 2, True
    ),
)
margin = pair(
    "combined_margin_loss",
    lambda x: C.combined_margin_loss(
        x, plain_torch.zeros(x.shape[0], dtype=plain_torch.int64), 1.0, 0.3, 0.1
    ),
    lambda x: plain_torch.cat((plain_torch.cos(plain_torch.acos(x[:, :1]) + 0.3) - 0.1, x[:, 1:]), 1),
)
decode = pair(
    "ctc_greedy_decoder",
    lambda x: C.ctc_greedy_decoder(x, plain_torch.full((x.shape[1],), x.shape[0])),
    lambda x: losses.ctc_greedy_decoder_ref(x, plain_torch.full((x.shape[1],), x.shape[0]), True),
)
affine = pair(
    "layer_norm_affine",
    lambda x, w, b: C.layer_norm_affine(x, w, b, 1, 1, 1e-5),
    lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5),
)


@flow.unittest.skip_unless_1n1d()
class TestCustomOperators(flow.unittest.TestCase):
    @autotest(n=5, check_graph=True)
    def test_activations(test_case):
        x = random_tensor(ndim=2, dim0=random(1, 6).to(int), dim1=5, low=-3, high=3).to(random_device())
        return (
            bias_gelu(x, random_tensor(ndim=1, dim0=5)),
            quick_gelu(x),
            square_relu(x),
            fast_gelu(x),
            fast_gelu_mul(x, random_tensor(ndim=2, dim0=1, dim1=5).expand(x.shape[0], 5)),
        )

    @autotest(n=5, check_graph=True)
    def test_softmax(test_case):
        x = random_tensor(ndim=4, dim0=2, dim1=3, dim2=random(1, 5).to(int), dim3=6)
        return (
            mask_softmax(x, random_tensor(ndim=4, dim0=2, dim1=1, dim2=1, dim3=6, requires_grad=False)),
            tril(x),
            tril_softmax(x),
        )

    @autotest(n=5)
    def test_products_and_norms(test_case):
        x, w = random_tensor(ndim=2, dim0=4, dim1=6), random_tensor(ndim=1, dim0=6)
        return (
            dots(random_tensor(ndim=3, dim0=3, dim1=random(1, 9).to(int), dim2=17)),
            rms(x, w),
            skip_norm(x, w, random_tensor(ndim=2, dim0=4, dim1=6)),
            cross(x, random_tensor(ndim=2, dim0=6, dim1=6), random_tensor(ndim=2, dim0=4, dim1=6), w),
            affine(x, w, random_tensor(ndim=1, dim0=6)),
            glu(x, random_tensor(ndim=2, dim0=8, dim1=6), random_tensor(ndim=1, dim0=8)),
            turn(random_tensor(ndim=4, dim0=2, dim1=3, dim2=2, dim3=8)),
        )

    @autotest(n=5)
    def test_detection(test_case):
        n = random(1, 40).to(int)
        # the two areas less the overlap stay above 0.88
        sizes = [random_tensor(ndim=1, dim0=n, low=1.2, high=2) for _ in range(8)]
        return (
            iou(*sizes[:5]),
            center(*sizes),
            angle(*sizes[:4]),
            pool(random_tensor(ndim=4, dim0=2, dim1=3, dim2=6, dim3=5)),
        )

    @autotest(n=5)
    def test_losses(test_case):
        return margin(random_tensor(ndim=2, dim0=3, dim1=4, low=-0.9, high=0.9)), decode(
            random_tensor(ndim=3, dim0=6, dim1=2, dim2=4, requires_grad=False)
        )


if __name__ == "__main__":
    unittest.main()
