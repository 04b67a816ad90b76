"""Dropout on the CPU samples its mask inside one kernel, forward and backward, and stores no mask.

RANDOM: other numbers of the same distribution.
"""

from __future__ import annotations

import math

import torch

from .patterns import Editor, contiguous, kernel_for, same_layout

aten = torch.ops.aten
_LIKE = aten.empty_like.default
_LEAST = 4096  # elements: below, the calls cost more than sampling


def fuse_dropout(program):
    """Replace dropout and its gradient by oneflow::bias_dropout and its gradient, which count from a seed.

    The replaced operators are empty_like, bernoulli_(1 - p), div_(1 - p) and the products with the mask.
    """
    editor = Editor(program)
    if any(n.meta.get("recomputed") for n in editor.graph.nodes):
        return program  # the recomputation samples again from a saved generator state
    for draw in editor.nodes(aten.bernoulli_.float):
        noise = draw.args[0]
        keep = editor.number(draw.args[1]) if len(draw.args) > 1 else 0.5
        if (
            keep is not None
            and 0 < keep < 1
            and noise.target is _LIKE
            and kernel_for(noise.meta["tensor"])
            and noise.meta["tensor"].device.type == "cpu"
        ):
            _fuse(editor, draw, noise, keep)
    return program


def _fuse(editor, draw, noise, keep):
    info = noise.meta["tensor"]
    divide = [n for n in noise.users if n.target in (aten.div_.Scalar, aten.div_.Tensor)]
    products = [n for n in noise.users if n.target is aten.mul.Tensor]
    if (
        len(divide) != 1
        or editor.number(divide[0].args[1]) != keep
        or len(noise.users) != 2 + len(products)
        or divide[0].users
        or draw.users
    ):
        return
    order = editor.order
    if (
        not order[draw] < order[divide[0]]
        or any(order[n] < order[divide[0]] for n in products)
        or len(editor.writes[noise]) != 2
    ):
        return
    if (
        math.prod(info.shape) < _LEAST
        or not contiguous(info)
        or not all(_plain_product(n, noise) for n in products)
    ):
        return
    seed = editor.insert(draw, aten.empty.memory_format, ([],), {"dtype": torch.int64, "device": info.device})
    editor.insert(draw, aten.random_.default, (seed,), info=seed.meta["tensor"])
    for node in products:
        x = node.args[0] if node.args[1] is noise else node.args[1]
        biased = _biased(editor, x, {node, noise})
        if biased is not None:
            editor.replace_by_kernel(node, "bias_dropout", (*biased, 1 - keep, seed))
        else:
            editor.replace_by_kernel(node, "bias_dropout_backward", (x, 1 - keep, seed))
    for node in (draw, divide[0], noise):
        editor.graph.erase_node(node)


def _plain_product(node, noise):
    factor = node.args[0] if node.args[1] is noise else node.args[1]
    if factor is noise or not isinstance(factor, torch.fx.Node) or node.kwargs:
        return False
    a, b = factor.meta.get("tensor"), noise.meta["tensor"]
    return a is not None and a[:2] == b[:2] and same_layout(node.meta["tensor"], b)


def _biased(editor, x, users):
    """(y, bias, axis) if x is y plus a 1-d bias along the last dimension, computed for this dropout only."""
    sum_parts = bias_sum(x)
    if sum_parts is None or set(x.users) != users or not editor.untouched(x):
        return None
    end = max(editor.order[n] for n in users)
    return sum_parts if all(editor.constant_between(t, editor.order[x], end) for t in sum_parts[:2]) else None


def bias_sum(node):
    """(y, bias, axis) if the node is y + bias, otherwise None.

    The bias is 1-d, along the last dimension of y, and all three have one dtype.
    """
    if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return None
    for y, bias in (node.args, node.args[::-1]):
        if isinstance(y, torch.fx.Node) and isinstance(bias, torch.fx.Node):
            a, b = y.meta.get("tensor"), bias.meta.get("tensor")
            if (
                a is not None
                and b is not None
                and a[:2] == node.meta["tensor"][:2]
                and len(a.shape) > 1
                and b.shape == a.shape[-1:]
                and b.dtype is a.dtype
                and b.device == a.device
            ):
                return y, bias, len(a.shape) - 1
    return None
