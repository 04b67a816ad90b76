"""The gradient of masked_fill's number, summed in eager's order. EXACT.

Autograd adds up the selected elements. For the symbolic tensors of a capture, it sums them among zeros, which
rounds differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .patterns import Editor, only_user

if TYPE_CHECKING:
    from ..program import Program


aten = torch.ops.aten


def sum_of_selected(program: Program) -> Any:
    """Sum the selected elements only, as eager does.

    sum(where(mask, gradient, 0)) after masked_fill(x, mask, number) becomes sum(masked_select(gradient,
    mask)).
    """
    editor = Editor(program)
    masks = {n.args[1] for n in editor.nodes(aten.masked_fill.Tensor, aten.masked_fill_.Tensor)}
    for choice in editor.nodes(aten.where.self):
        zero: Any
        mask, gradient, zero = choice.args
        total = only_user(choice)
        if (
            mask in masks
            and choice.meta.get("phase") == "backward"
            and editor.number(zero) == 0
            and total is not None
            and total.target is aten.sum.default
        ):
            choice.target, choice.args = aten.masked_select.default, (gradient, mask)
            info = choice.meta["tensor"]
            choice.meta["tensor"] = type(info)(("selected",), info.dtype, info.device, (1,))
            editor.erase(zero)
    return program
