"""A bias and the gelu after it become one kernel, whose gradient also sums the bias gradient. ROUNDING."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ..program import node_argument
from .fuse_dropout import bias_sum
from .patterns import Editor, contiguous, described, kernel_for

if TYPE_CHECKING:
    from ..program import Program


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
