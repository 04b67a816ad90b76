"""The operators of csrc/ops.cpp as the public functions call them."""

from __future__ import annotations

import types
from collections.abc import Sequence

import torch

# enum Point of csrc/cpu/kernels.h
POINT = {
    name: i
    for i, name in enumerate(
        """
quick_gelu quick_gelu_backward square_relu square_relu_backward fast_gelu_mul fast_gelu_mul_backward
boxes_coord boxes_coord_backward
intersection intersection_backward iou iou_backward convex convex_backward center_dist center_dist_backward
angle angle_backward
ciou ciou_backward fake_quantize
""".split()
    )
}

POINT_NAMES = {code: name for name, code in POINT.items()}
run = types.SimpleNamespace()  # {operator: callable}; filled by registration.register()


def point(
    name: str, inputs: Sequence[torch.Tensor], outputs: int, scalars: Sequence[float] = ()
) -> list[torch.Tensor]:
    """Return the outputs of an elementwise operator. Inputs are broadcast and made contiguous here."""
    if any(t.shape != inputs[0].shape for t in inputs):
        inputs = torch.broadcast_tensors(*inputs)
    return run.pointwise(POINT[name], list(inputs), outputs, [float(s) for s in scalars])
