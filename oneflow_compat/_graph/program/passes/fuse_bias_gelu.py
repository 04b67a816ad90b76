"""A bias and the gelu after it become one kernel, whose gradient also sums the bias gradient. ROUNDING."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from .fuse_dropout import bias_sum
from .patterns import Editor, contiguous, described, kernel_for

aten = torch.ops.aten


def fuse_bias_gelu(program):
    """Replace gelu of x + bias by oneflow::bias_gelu, and its gradient with the bias gradient by one kernel.

    A bias inside addmm costs nothing and stays.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.gelu.default):
        if not node._erased and not node.kwargs and len(node.args) == 1:
            _fuse(editor, node.args[0])
    return program


def _fuse(editor, biased):
    forward = [u for u in biased.users if u.target is aten.gelu.default and not u.kwargs]
    backward = [
        u
        for u in biased.users
        if u.target is aten.gelu_backward.default
        and not u.kwargs
        and u.args[1] is biased
        and u.args[0] is not biased
    ]
    users = [*forward, *backward]
    info = biased.meta.get("tensor")
    if (
        len(users) != len(biased.users)
        or not editor.untouched(biased)
        or len(info.shape) < 2
        or not kernel_for(info)
    ):
        return
    if any(not contiguous(u.meta["tensor"]) or u.meta["tensor"][:2] != info[:2] for u in users):
        return
    sum_parts = bias_sum(biased)
    if sum_parts is None:
        return
    x, bias, axis = sum_parts
    end = max(editor.order[u] for u in users)
    if not all(editor.constant_between(t, editor.order[biased], end) for t in (x, bias)):
        return
    for node in backward:
        sums = [s for s in _uses(node) if _sums_rows(s, info.shape[-1])]
        if not sums or info.device.type != "cpu":  # only the CPU has a kernel that also sums
            editor.replace_by_kernel(node, "bias_gelu_backward", (node.args[0], x, bias, axis))
            continue
        call = editor.insert(
            node, torch.ops.oneflow.bias_gelu_backward_sums.default, (node.args[0], x, bias, axis), info=None
        )
        parts = editor.insert(
            node, operator.getitem, (call, 1), info=described(call)[1]
        )  # sums of groups of rows
        db = editor.insert(node, aten.sum.dim_IntList, (parts, [0]))
        if db.meta["tensor"].dtype is not info.dtype:
            db = editor.insert(node, aten._to_copy.default, (db,), {"dtype": info.dtype})
        for s in sums:
            editor.swap(s, editor.insert(s, aten.view.default, (db, list(s.meta["tensor"].shape))))
        editor.swap(node, editor.insert(node, operator.getitem, (call, 0), info=node.meta["tensor"]))
    for node in forward:
        editor.replace_by_kernel(node, "bias_gelu", (x, bias, axis))


def _uses(node):
    """The users of a node, also through view()."""
    for user in node.users:
        yield user
        if user.target is aten.view.default:
            yield from _uses(user)


def _sums_rows(node, length):
    """Whether the node sums every dimension except the last, which has this length."""
    if node.target is not aten.sum.dim_IntList or node.kwargs or not isinstance(node.args[0], Node):
        return False
    shape = node.args[0].meta["tensor"].shape
    return shape[-1] == length and sorted(d % len(shape) for d in node.args[1]) == list(range(len(shape) - 1))
