"""Activations written out in plain operators become one kernel, forward and backward. ROUNDING."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from ...._kernels.kernels import POINT
from ..program import node_argument
from .fuse_dropout import bias_sum
from .patterns import Editor, contiguous, described, kernel_for, traced

if TYPE_CHECKING:
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


# --------------------------------------------------------------------------- bias and gelu
aten = torch.ops.aten


def fuse_bias_gelu(program: Program) -> Program:
    """Replace gelu of x + bias by oneflow::bias_gelu, and its gradient with the bias gradient by one kernel.

    A bias inside addmm costs nothing and stays.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.gelu.default):
        if not node._erased and not node.kwargs and len(node.args) == 1:
            _fuse(editor, node_argument(node, 0))
    return program


def _fuse(editor: Editor, biased: Node) -> None:
    users = _gelus(editor, biased)
    summands = bias_sum(biased) if users else None
    if summands is None:
        return
    x, bias, axis = summands
    end = max(editor.order[u] for u in users)
    if not all(editor.constant_between(t, editor.order[biased], end) for t in (x, bias)):
        return
    for node in users:
        if node.target is aten.gelu.default:
            editor.replace_by_kernel(node, "bias_gelu", summands)
        else:
            _fuse_backward(editor, node, summands)


def _gelus(editor: Editor, biased: Node) -> list[Node]:
    """Return the users of the sum, the gradients first, if all are gelus that a kernel serves; else []."""
    backward = [u for u in biased.users if _is_gradient(u, biased)]
    forward = [u for u in biased.users if u.target is aten.gelu.default and not u.kwargs]
    users, info = [*backward, *forward], biased.meta["tensor"]
    if len(users) != len(biased.users) or not editor.untouched(biased):
        return []
    if len(info.shape) < 2 or not kernel_for(info):
        return []
    fits = all(contiguous(u.meta["tensor"]) and u.meta["tensor"][:2] == info[:2] for u in users)
    return users if fits else []


def _is_gradient(node: Node, biased: Node) -> bool:
    if node.target is not aten.gelu_backward.default or node.kwargs:
        return False
    return node.args[1] is biased and node.args[0] is not biased


def _fuse_backward(editor: Editor, node: Node, summands: tuple[Node, Node, int]) -> None:
    """Compute the gradient of gelu, and the gradient of the bias if it is summed here, by one kernel."""
    info = node.meta["tensor"]
    sums = [s for s in _uses(node) if _sums_rows(s, info.shape[-1])]
    args = (node.args[0], *summands)
    if not sums or info.device.type != "cpu":  # only the CPU has a kernel that also sums
        editor.replace_by_kernel(node, "bias_gelu_backward", args)
        return
    call = editor.insert(node, torch.ops.oneflow.bias_gelu_backward_sums.default, args, info=None)
    sums_of_groups = editor.insert(node, operator.getitem, (call, 1), info=described(call)[1])
    bias_gradient = editor.insert(node, aten.sum.dim_IntList, (sums_of_groups, [0]))
    if bias_gradient.meta["tensor"].dtype is not info.dtype:
        bias_gradient = editor.insert(node, aten._to_copy.default, (bias_gradient,), {"dtype": info.dtype})
    for s in sums:
        shape = list(s.meta["tensor"].shape)
        editor.swap(s, editor.insert(s, aten.view.default, (bias_gradient, shape)))
    editor.swap(node, editor.insert(node, operator.getitem, (call, 0), info=info))


def _uses(node: Node) -> Iterator[Node]:
    """Yield the users of a node, also through view()."""
    for user in node.users:
        yield user
        if user.target is aten.view.default:
            yield from _uses(user)


def _sums_rows(node: Node, length: int | str) -> bool:
    """Whether the node sums every dimension except the last, which has this length."""
    if node.target is not aten.sum.dim_IntList or node.kwargs or not isinstance(node.args[0], Node):
        return False
    shape = node.args[0].meta["tensor"].shape
    dims: Any = node.args[1]
    return shape[-1] == length and sorted(d % len(shape) for d in dims) == list(range(len(shape) - 1))
