"""Activations written out in plain operators become one kernel, forward and backward. ROUNDING."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from ...._kernels.kernels import POINT
from .patterns import Editor, traced

if TYPE_CHECKING:
    from torch.fx import Node

    from ..program import Program


aten = torch.ops.aten
_K = math.sqrt(2 / math.pi)
# (an operator that every form contains; the kernel; the forms that people write). The kernel is torch's
# (operator, gradient, keywords) or the name of one of ours.
COMPOSITIONS: tuple[Any, ...] = (
    (
        aten.tanh.default,
        (aten.gelu.default, aten.gelu_backward.default, {"approximate": "tanh"}),
        (
            lambda x: 0.5 * x * (1.0 + torch.tanh(_K * (x + 0.044715 * torch.pow(x, 3.0)))),
            lambda x: 0.5 * (x * (1.0 + torch.tanh(_K * (x + 0.044715 * torch.pow(x, 3.0))))),
            lambda x: x * 0.5 * (1.0 + torch.tanh(_K * x * (1 + 0.044715 * x * x))),
        ),
    ),
    (
        aten.erf.default,
        (aten.gelu.default, aten.gelu_backward.default, {}),
        (
            lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
            lambda x: x * 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5))),
            lambda x: x * (0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))),
        ),
    ),
    (aten.sigmoid.default, "quick_gelu", (lambda x: x * torch.sigmoid(1.702 * x),)),
    (
        aten.sigmoid.default,
        (aten.silu.default, aten.silu_backward.default, {}),
        (lambda x: x * torch.sigmoid(x),),
    ),
    (
        aten.softplus.default,
        (aten.mish.default, aten.mish_backward.default, {}),
        (lambda x: x * torch.tanh(F.softplus(x)),),
    ),
    (
        aten.hardtanh.default,
        (aten.hardswish.default, aten.hardswish_backward.default, {}),
        (
            lambda x: x * F.relu6(x + 3) / 6,
            lambda x: x * (F.relu6(x + 3) / 6),
        ),
    ),
    (aten.relu.default, "square_relu", (lambda x: torch.relu(x) ** 2,)),
)


def fuse_activations(program: Program) -> Program:
    """Replace gelu, quick_gelu, silu, mish, hardswish and squared relu of plain operators by kernels."""
    editor = Editor(program)
    present = {n.target for n in editor.graph.nodes}
    for sign, kernel, forms in COMPOSITIONS:
        if sign not in present:
            continue
        for form in forms:
            forward, backward = traced(form)
            for node, match in backward.find(editor):
                if isinstance(kernel, str):
                    _replace_by_own_kernel(editor, node, kernel + "_backward", [match["x"], match["dy"]])
                else:
                    editor.replace(node, kernel[1], (match["dy"], match["x"]), kernel[2])
            for node, match in forward.find(editor):
                if isinstance(kernel, str):
                    _replace_by_own_kernel(editor, node, kernel, [match["x"]])
                else:
                    editor.replace(node, kernel[0], (match["x"],), kernel[2])
    return program


def _replace_by_own_kernel(editor: Editor, node: Node, name: str, inputs: list[Node]) -> None:
    info = node.meta["tensor"]
    if all(t.meta["tensor"].shape == info.shape and t.meta["tensor"].dtype is info.dtype for t in inputs):
        editor.replace_by_kernel(node, "pointwise", (POINT[name], inputs, 1, []), part=0)
