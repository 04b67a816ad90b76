"""Dropout on the CPU samples its mask inside one kernel, forward and backward, and stores no mask.

RANDOM: other numbers of the same distribution.
"""

import math

import torch
from torch.fx import Node

from ..program import Program, node_argument
from .patterns import Editor, contiguous, kernel_for, same_layout

aten = torch.ops.aten
_LEAST = 4096  # elements: below, the calls cost more than sampling


def fuse_dropout(program: Program) -> Program:
    """Replace dropout and its gradient by oneflow::bias_dropout and its gradient, which count from a seed.

    The replaced operators are empty_like, bernoulli_(1 - p), div_(1 - p) and the products with the mask.
    """
    editor = Editor(program)
    if any(n.meta.get("recomputed") for n in editor.graph.nodes):
        return program  # the recomputation samples again from a saved generator state
    for draw in editor.nodes(aten.bernoulli_.float):
        keep = editor.number(draw.args[1]) if len(draw.args) > 1 else 0.5
        mask = node_argument(draw, 0)
        if keep is None or not 0 < keep < 1 or not _has_kernel(mask):
            continue
        divide, products = _uses_of_mask(mask)
        if divide is not None and _is_dropout(editor, draw, divide, products, keep):
            _fuse(editor, draw, divide, products, 1 - keep)
    return program


def _has_kernel(mask: Node) -> bool:
    info = mask.meta["tensor"]
    if mask.target is not aten.empty_like.default or info.device.type != "cpu" or not kernel_for(info):
        return False
    return math.prod(info.shape) >= _LEAST and contiguous(info)


def _uses_of_mask(mask: Node) -> tuple[Node | None, list[Node]]:
    """Return (the division by the probability to keep, the products with the mask), or (None, [])."""
    divisions = [n for n in mask.users if n.target in (aten.div_.Scalar, aten.div_.Tensor)]
    products = [n for n in mask.users if n.target is aten.mul.Tensor]
    if len(divisions) != 1 or len(mask.users) != 2 + len(products):
        return None, []
    return divisions[0], products


def _is_dropout(editor: Editor, draw: Node, divide: Node, products: list[Node], keep: float) -> bool:
    """Whether the mask is sampled, divided, multiplied, in this order, and not used otherwise."""
    mask = node_argument(draw, 0)
    order = editor.order
    if editor.number(divide.args[1]) != keep or divide.users or draw.users or len(editor.writes[mask]) != 2:
        return False
    if not order[draw] < order[divide] or any(order[n] < order[divide] for n in products):
        return False
    return all(_plain_product(n, mask) for n in products)


def _fuse(editor: Editor, draw: Node, divide: Node, products: list[Node], p: float) -> None:
    mask = node_argument(draw, 0)
    device = mask.meta["tensor"].device
    seed = editor.insert(draw, aten.empty.memory_format, ([],), {"dtype": torch.int64, "device": device})
    editor.insert(draw, aten.random_.default, (seed,), info=seed.meta["tensor"])
    for node in products:
        x = node_argument(node, 0 if node.args[1] is mask else 1)
        biased = _biased(editor, x, {node, mask})
        if biased is not None:
            editor.replace_by_kernel(node, "bias_dropout", (*biased, p, seed))
        else:
            editor.replace_by_kernel(node, "bias_dropout_backward", (x, p, seed))
    for node in (draw, divide, mask):
        editor.graph.erase_node(node)


def _plain_product(node: Node, mask: Node) -> bool:
    """Whether the node multiplies a tensor of the mask's shape and dtype, in the mask's layout."""
    factor = node.args[0] if node.args[1] is mask else node.args[1]
    if factor is mask or not isinstance(factor, Node) or node.kwargs:
        return False
    info, mask_info = factor.meta.get("tensor"), mask.meta["tensor"]
    return info is not None and info[:2] == mask_info[:2] and same_layout(node.meta["tensor"], mask_info)


def _biased(editor: Editor, x: Node, users: set[Node]) -> tuple[Node, Node, int] | None:
    """Return (y, bias, axis) if x is y plus a 1-d bias along the last dimension, computed for this dropout
    only.
    """
    summands = bias_sum(x)
    if summands is None or set(x.users) != users or not editor.untouched(x):
        return None
    end = max(editor.order[n] for n in users)
    return summands if all(editor.constant_between(t, editor.order[x], end) for t in summands[:2]) else None


def bias_sum(node: Node) -> tuple[Node, Node, int] | None:
    """Return (y, bias, axis) if the node is y + bias, otherwise None.

    The bias is 1-d, along the last dimension of y, and all three have one dtype.
    """
    if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return None
    for y, bias in (node.args, node.args[::-1]):
        if isinstance(y, Node) and isinstance(bias, Node) and _is_bias_of(bias, y, node):
            return y, bias, len(y.meta["tensor"].shape) - 1
    return None


def _is_bias_of(bias: Node, y: Node, total: Node) -> bool:
    a, b = y.meta.get("tensor"), bias.meta.get("tensor")
    if a is None or b is None or a[:2] != total.meta["tensor"][:2] or len(a.shape) < 2:
        return False
    return b.shape == a.shape[-1:] and b.dtype is a.dtype and b.device == a.device
