"""Scaled and masked softmax, with its dropout, becomes one kernel, forward and backward. ROUNDING."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ..program import node_argument
from ..tensor_info import Shape
from .patterns import Editor, only_user, same_layout

if TYPE_CHECKING:
    from torch.fx.node import Argument as FxArgument

    from ..program import Program


aten = torch.ops.aten
_LEAST = 20_000  # elements: below, a call costs more than the passes over memory it saves
_ALL = 1 << 60  # a diagonal that keeps every column
_FAR = -1e30  # the sum of it and an ordinary number is itself, up to rounding
_CHOOSE = {aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf}
_WHERE = {aten.where.self, aten.where.ScalarOther, aten.where.Scalar}
_VIEWS = {
    aten.expand.default,
    aten.unsqueeze.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.view.default,
    aten.permute.default,
    aten.transpose.int,
}


# (mask, how it is applied, shape) -> (the bool node that keeps elements, its position)
Masks = dict[tuple[Node, str | None, Shape], tuple[Node, float]]


class _Softmax:
    """The value that one _softmax node computes: softmax(where(keep, scale * x, fill))."""

    def __init__(self, x: Node) -> None:
        self.x, self.scale, self.fill = x, 1.0, 0.0
        self.mask: Node | None = None
        # "keep": the mask chooses x; "drop": it chooses fill; "add": x + where(mask, 0, very negative number)
        self.how: str | None = None


def fuse_softmax(program: Program) -> Program:
    """Replace softmax of a masked, scaled tensor by oneflow::masked_softmax, and its gradient likewise."""
    editor = Editor(program)
    masks: Masks = {}
    for node in editor.nodes(aten._softmax.default):
        info = node.meta["tensor"]
        if (
            node.args[2]
            or not info.shape
            or node.args[1] not in (-1, len(info.shape) - 1)
            or math.prod(info.shape) < _LEAST
        ):
            continue
        softmax = _peel(editor, node)
        if softmax is None:
            continue
        keep = _keep(editor, softmax, info.shape, masks, node)
        if keep is None:
            continue
        new = editor.replace_by_kernel(
            node, "masked_softmax", (softmax.x, keep, 0, softmax.scale, softmax.fill, 0.0, None), part=0
        )
        if new is not None:
            for back in [
                u for u in new.users if u.target is aten._softmax_backward_data.default and u.args[1] is new
            ]:
                _backward(editor, back, new, softmax, keep)
            _take_dropout(editor, new)
    return program


def _peel(editor: Editor, node: Node) -> _Softmax | None:
    """Read the scale and mask operators under a softmax, from the outside in.

    Each operator must be used by the next one only, and nothing may write its result. Return None if
    something writes the tensor or the mask before the softmax.
    """
    below, info = node_argument(node, 0), node.meta["tensor"]
    softmax, position = _Softmax(below), editor.order[node]
    while below.op == "call_function" and only_user(below) is not None and editor.untouched(below):
        inner = _scale(editor, below, softmax) or _mask(editor, below, softmax)
        if inner is None or inner.meta.get("tensor") is None or inner.meta["tensor"][:2] != info[:2]:
            break
        position = min(position, editor.order[below])
        below = inner
    softmax.x = below
    ends = [t for t in (below, softmax.mask) if t is not None]
    if (
        below.meta.get("tensor") is None
        or below.meta["tensor"][:2] != info[:2]
        or not all(editor.constant_between(t, position, editor.order[node]) for t in ends)
    ):
        return None
    return softmax


def _scale(editor: Editor, node: Node, softmax: _Softmax) -> Node | None:
    """Return x of x * number or x / number, and record the number; None for others."""
    if node.kwargs or len(node.args) != 2:
        return None
    if node.target in (aten.mul.Tensor, aten.mul.Scalar):
        for x, c in (node.args, node.args[::-1]):
            value = editor.number(c)
            if value is not None and isinstance(x, Node):
                softmax.scale *= value
                return x
    if node.target in (aten.div.Tensor, aten.div.Scalar):
        value = editor.number(node.args[1])
        if value and isinstance(node.args[0], Node):
            softmax.scale /= value
            return node.args[0]
    return None


def _mask(editor: Editor, node: Node, softmax: _Softmax) -> Node | None:
    """Return x of a masked x, and record the mask; None for others.

    The mask is applied by masked_fill, by where with a number, or by adding zeros and very negative numbers.
    """
    if softmax.mask is not None or node.kwargs:
        return None
    x: FxArgument = None
    mask: FxArgument = None
    fill = how = None
    if node.target in (aten.masked_fill.Scalar, aten.masked_fill.Tensor):
        x, mask, how = node.args[0], node.args[1], "drop"
        fill = editor.number(node.args[2])
    elif node.target in _CHOOSE:
        mask, x, how = node.args[0], node.args[1], "keep"
        fill = editor.number(node.args[2])
        if fill is None:
            x, how = node.args[2], "drop"
            fill = editor.number(node.args[1])
    elif node.target is aten.add.Tensor and len(node.args) == 2:
        for x, mask in (node.args, node.args[::-1]):
            fill = _far_below(editor, mask)
            if fill is not None:
                how = "add"
                break
    if fill is None or not isinstance(x, Node) or not isinstance(mask, Node):
        return None
    if how != "add" and mask.meta["tensor"].dtype is not torch.bool:
        return None
    softmax.mask, softmax.fill, softmax.how = mask, float(fill) * softmax.scale, how
    return x


def _far_below(editor: Editor, mask: FxArgument) -> float | None:
    """Return the number of a mask that is where(condition, 0, very negative number) or a view of it, or None.

    x + number then equals the number, so the sum chooses between x and the number (for finite x).
    """
    base = _chain(mask)[-1] if isinstance(mask, Node) else None
    if (
        base is None
        or base.target not in _WHERE
        or base.args[0].meta["tensor"].dtype is not torch.bool
        or not editor.untouched(base)
    ):
        return None
    zero, far = editor.number(base.args[1]), editor.number(base.args[2])
    return far if zero == 0 and far is not None and far <= _FAR else None


def _chain(node: Node) -> list[Node]:
    """Return the node and the nodes it is a plain view of, down to the node that computes the memory."""
    chain = [node]
    while chain[-1].op == "call_function" and chain[-1].target in _VIEWS:
        chain.append(node_argument(chain[-1], 0))
    return chain


def _keep(editor: Editor, softmax: _Softmax, shape: Shape, masks: Masks, node: Node) -> Node | None:
    """Return a bool node of the softmax's shape, true where x is kept; all softmaxes of one mask share it."""
    mask = softmax.mask
    if mask is None:
        return None
    key = mask, softmax.how, shape
    if key in masks and editor.constant_between(mask, masks[key][1], editor.order[node]):
        return masks[key][0]
    if softmax.how == "add":
        *views, base = _chain(mask)
        condition = node_argument(base, 0)
        if not editor.untouched(condition):
            return None
        mask = _expand_to(editor, condition, base.meta["tensor"].shape, node)
        for view in reversed(views):
            target: Any = view.target
            mask = editor.insert(node, target, (mask, *view.args[1:]))
    elif softmax.how == "drop":
        mask = editor.insert(node, aten.logical_not.default, (mask,))
    mask = _expand_to(editor, mask, shape, node)
    info = mask.meta["tensor"]
    if info.shape[-1] > 1 and info.stride[-1] not in (0, 1):
        mask = editor.insert(node, aten.clone.default, (mask,), {"memory_format": torch.contiguous_format})
    masks[key] = mask, editor.order[node]
    return mask


def _expand_to(editor: Editor, mask: Node, shape: Shape, node: Node) -> Node:
    return (
        mask
        if mask.meta["tensor"].shape == shape
        else editor.insert(node, aten.expand.default, (mask, list(shape)))
    )


def _backward(editor: Editor, back: Node, y: Node, softmax: _Softmax, keep: Node) -> None:
    """Fuse the gradients of softmax, mask and scale, if they follow one another."""
    info = back.meta["tensor"]
    if back.args[2] not in (-1, len(info.shape) - 1) or back.args[3] is not info.dtype:
        return
    if not same_layout(info, y.meta["tensor"]):
        return
    last, scale, is_masked = _gradients_after(editor, back, softmax)
    read = [(back, y), (back, node_argument(back, 0))]
    if softmax.mask is not None and softmax.how != "add":
        read.append((y, softmax.mask))
    end = editor.order[last]
    if not is_masked or not all(editor.constant_between(t, editor.order[n], end) for n, t in read):
        return
    mask, diagonal = (None, _ALL) if softmax.how == "add" else (keep, 0)
    args = (back.args[0], None, y, mask, diagonal, scale, 0.0, None)
    editor.replace_by_kernel(last, "masked_softmax_backward", args)


def _gradients_after(editor: Editor, back: Node, softmax: _Softmax) -> tuple[Node, float, bool]:
    """Return (the last gradient of scale and mask after a softmax's, their scale, whether the mask is
    applied).
    """
    last, scale, is_masked = back, 1.0, softmax.how == "add"
    while True:
        user = only_user(last)
        if user is None or not editor.untouched(last):
            return last, scale, is_masked
        outer = _Softmax(last)
        if _keeps_meta(user, back) and user.args[0] is last and _scale(editor, user, outer) is last:
            scale *= outer.scale
        elif not is_masked and _chosen(editor, user, last, softmax):
            is_masked = True
        else:
            return last, scale, is_masked
        last = user


def _keeps_meta(user: Node, node: Node) -> bool:
    info = user.meta.get("tensor")
    return info is not None and info[:2] == node.meta["tensor"][:2]


def _chosen(editor: Editor, node: Node, gradient: Node, softmax: _Softmax) -> bool:
    """Whether the node keeps the gradient where the mask kept x, and is 0 elsewhere."""
    if node.target in (aten.masked_fill.Scalar, aten.masked_fill.Tensor):
        return (
            softmax.how == "drop"
            and node.args[0] is gradient
            and node.args[1] is softmax.mask
            and editor.number(node.args[2]) == 0
        )
    if node.target not in _CHOOSE or node.args[0] is not softmax.mask:
        return False
    kept, elsewhere = node.args[1:] if softmax.how == "keep" else node.args[:0:-1]
    return kept is gradient and editor.number(elsewhere) == 0


def _take_dropout(editor: Editor, y: Node) -> None:
    """Sample the dropout of the softmax in the same kernel, and its gradient in the gradient's kernel.

    See fuse_dropout.py for the dropout operators.
    """
    call, op = node_argument(y, 0), torch.ops.oneflow
    drops = [u for u in y.users if u.target is op.bias_dropout_backward.default and u.args[0] is y]
    if len(drops) != 1 or not editor.untouched(y):
        return
    drop, p, seed = drops[0], drops[0].args[1], node_argument(drops[0], 2)
    for node in (seed, next(u for u in seed.users if u.target is aten.random_.default)):
        call.prepend(node)
        editor.order[node] = editor.order[call] - 0.25
    call.args = (*call.args[:5], p, seed)
    dropped = editor.insert(y.next, operator.getitem, (call, 1), info=drop.meta["tensor"])
    dropped.meta.update(drop.meta)
    editor.swap(drop, dropped)
    for back in [u for u in y.users if u.target is op.masked_softmax_backward.default]:
        through = back.args[0]  # a node or None
        if (
            isinstance(through, Node)
            and through.target is op.bias_dropout_backward.default
            and through.args[1:] == (p, seed)
            and only_user(through) is back
        ):
            if editor.constant_between(node_argument(through, 0), editor.order[through], editor.order[back]):
                back.args = (None, through.args[0], *back.args[2:6], p, seed)
                editor.erase(through)
