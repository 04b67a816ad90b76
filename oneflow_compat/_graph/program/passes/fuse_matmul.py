"""Sums and scales of matrix products move into the kernel of the product. ROUNDING."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from ..program import Program, is_view
from .patterns import (
    Editor,
    base_of,
    contiguous,
    only_user,
    owns_memory,
    same_layout,
    through_views,
    users_of_memory,
)

aten = torch.ops.aten
_INTO = {aten.mm.default: aten.addmm_.default, aten.bmm.default: aten.baddbmm_.default}
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LEAST = 1 << 16  # elements of a scaled product: below, the scale costs less than the larger call


def add_to_matmul(program: Program) -> Program:
    """Accumulate the product of add(c, a @ b) into c, if c is a fresh result that dies here.

    This saves the memory of the product and one pass over memory.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.add.Tensor, aten.add_.Tensor):
        if (
            node.kwargs
            or len(node.args) != 2
            or not all(isinstance(a, Node) for a in node.args)
            or node.meta["tensor"].dtype not in _FLOATS
        ):
            continue
        in_place = node.target is aten.add_.Tensor
        summands: Any = node.args
        for c, product in (summands,) if in_place else (summands, summands[::-1]):
            if _accumulate(editor, node, c, product, in_place):
                break
    return program


def _accumulate(editor: Editor, node: Node, c: Node, product: Node, in_place: bool) -> bool:
    """Replace a sum of c and a matrix product by an addmm_ into c, and return True, if values stay equal."""
    call = through_views(product)
    if call.op != "call_function" or call.target not in _INTO:
        return False
    if only_user(call) is None or only_user(product) is not node or not editor.untouched(call):
        return False
    if not _fits_into(c, product, node) or not in_place and not _dies(editor, c, node):
        return False
    factors = call.all_input_nodes
    if not all(editor.constant_between(a, editor.order[call], editor.order[node]) for a in factors):
        return False
    if any(base_of(a) is base_of(c) for a in factors):
        return False  # c is a factor of the product as well
    info, shape = node.meta["tensor"], call.meta["tensor"].shape
    target = c if info.shape == shape else editor.insert(node, aten.view.default, (c, list(shape)))
    new = editor.insert(node, _INTO[call.target], (target, *call.args), info=call.meta["tensor"])
    editor.writes.setdefault(base_of(c), []).append(editor.order[new])
    node.replace_all_uses_with(c)
    editor.graph.erase_node(node)  # add_ writes, and the new node replaces this write
    editor.erase(product)
    return True


def _fits_into(c: Node, product: Node, total: Node) -> bool:
    """Whether both summands have the shape and dtype of the sum, and c its contiguous layout."""
    info = total.meta["tensor"]
    if not same_layout(c.meta.get("tensor"), info) or not contiguous(info):
        return False
    return bool(product.meta["tensor"][:2] == info[:2])


def _dies(editor: Editor, c: Node, node: Node) -> bool:
    """Whether c owns its memory and nothing else uses it at the node or later."""
    base = base_of(c)
    return owns_memory(base) and all(
        user is node or editor.order[user] < editor.order[node] for user in users_of_memory(base)
    )


def scale_into_matmul(program: Program) -> Program:
    """Replace bmm(a, b) * number by baddbmm with alpha.

    The same holds for the products of a scaled tensor that only products use.
    """
    editor = Editor(program)
    for node in editor.nodes(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar):
        scaled = _scaled(editor, node)
        if scaled is None:
            continue
        x, scale = scaled
        products = _products_to_scale(editor, node, x)
        for product in products:
            new = _scale_product(editor, product, scale)
        if products:
            node.replace_all_uses_with(x if not x._erased else new)
            editor.erase(node)
    return program


def _products_to_scale(editor: Editor, node: Node, x: Node) -> list[Node]:
    """Return the batched products whose scale the node is: the product x, or all users of the scaled x."""
    product = through_views(x)
    if product.target is aten.bmm.default and only_user(product) is not None and only_user(x) is node:
        if editor.untouched(product):
            return [product]
    products = list(_ends(node))
    if any(p.target is not aten.bmm.default for p in products) or len(set(products)) < len(products):
        return []
    constant = all(editor.constant_between(x, editor.order[node], editor.order[p]) for p in products)
    return products if constant else []


def _scale_product(editor: Editor, product: Node, scale: float) -> Node:
    info = product.meta["tensor"]
    options = {"dtype": info.dtype, "device": info.device}
    empty = editor.insert(product, aten.empty.memory_format, ([1, 1, 1],), options)
    new = editor.insert(product, aten.baddbmm.default, (empty, *product.args), {"beta": 0, "alpha": scale})
    new.meta["tensor"] = info
    editor.swap(product, new)
    return new


def _scaled(editor: Editor, node: Node) -> tuple[Node, float] | None:
    """Return (x, number) of x * number or x / number in x's dtype and layout, if nothing writes it."""
    info = node.meta["tensor"]
    if (
        node.kwargs
        or len(node.args) != 2
        or info.dtype not in _FLOATS
        or math.prod(info.shape) < _LEAST
        or not editor.untouched(node)
    ):
        return None
    multiply = node.target in (aten.mul.Tensor, aten.mul.Scalar)
    for x, c in (node.args, node.args[::-1]) if multiply else (node.args,):
        value = editor.number(c)
        if value and isinstance(x, Node) and same_layout(x.meta.get("tensor"), info):
            return x, float(value) if multiply else 1.0 / value
    return None


def _ends(node: Node) -> Iterator[Node]:
    """Yield the users of a node, seen through views."""
    for user in node.users:
        if user.op == "call_function" and (is_view(user) or user.target is aten._unsafe_view.default):
            yield from _ends(user)
        else:
            yield user
