"""EXACT passes over gradients: of activations, and of masked_fill.

Gradients of activations read the result of the activation instead of its input.

These gradients only ask on which side of a bound the input was, and the result tells the same. torch keeps
the input of hardtanh (relu6) and leaky_relu for the gradient; for the in-place ones it keeps a copy. The next
layer keeps the result anyway, so the input need not be kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ..program import node_argument
from .patterns import Editor, only_user

if TYPE_CHECKING:
    from torch.fx.node import Argument as FxArgument

    from ..program import Program
    from ..tensor_info import TensorInfo

if TYPE_CHECKING:
    from ..program import Program


aten = torch.ops.aten
# gradient: (forward, in place, their defaults)
_FORWARD = {
    aten.hardtanh_backward.default: (aten.hardtanh.default, aten.hardtanh_.default, (-1.0, 1.0)),
    aten.leaky_relu_backward.default: (aten.leaky_relu.default, aten.leaky_relu_.default, (0.01,)),
}


def gradients_from_results(program: Program) -> Program:
    """Let hardtanh_backward and leaky_relu_backward read the forward result, if nothing wrote it since."""
    editor = Editor(program)
    for node in editor.nodes(*_FORWARD):
        parameters = _bounds(node)
        result = _result(editor, node, parameters) if parameters is not None else None
        if result is not None:
            unused = node_argument(node, 1)
            node.update_arg(1, result)
            editor.erase(unused)
    return program


def _bounds(node: Node) -> tuple[FxArgument, ...] | None:
    """Return the forward operator's parameters.

    Return None if the result may be on another side of a bound than the input.
    """
    parameters: Any = node.args[2:]
    if any(isinstance(parameter, Node) for parameter in parameters):  # a number that each run reads
        return None
    if node.target is aten.leaky_relu_backward.default:
        slope, of_result = parameters
        return None if of_result or not slope > 0 else (slope,)
    dtype = node_argument(node, 1).meta["tensor"].dtype
    # a rounded result may not reach its bound
    return tuple(parameters) if all(torch.tensor(v, dtype=dtype).item() == v for v in parameters) else None


def _result(editor: Editor, node: Node, parameters: tuple[FxArgument, ...]) -> Node | None:
    """Return the forward operator's result for the input of a gradient node, or None."""
    target: Any = node.target
    forward, in_place, defaults = _FORWARD[target]
    x = node_argument(node, 1)
    same: Callable[[Node], bool] = lambda n: (
        (*n.args[1:], *defaults[len(n.args) - 1 :]) == parameters
        and editor.order[x] < editor.order[n] < editor.order[node]
    )
    for y in x.users:
        if (
            y.target is forward
            and same(y)
            and editor.constant_between(y, editor.order[y], editor.order[node])
        ):
            return y
    if x.target is aten.clone.default:  # a copy of a tensor that the operator then writes
        y = node_argument(x, 0)
        for write in y.users:
            if write.target is in_place and write.args[0] is y and same(write):
                if editor.constant_between(
                    y, editor.order[x], editor.order[write]
                ) and editor.constant_between(y, editor.order[write], editor.order[node]):
                    return y
    return None


# ----------------------------------- The gradient of masked_fill's number, summed in eager's order. EXACT
# Autograd adds up the selected elements. For the symbolic tensors of a capture, it sums them among zeros,
# which rounds differently.


def sum_of_selected(program: Program) -> Program:
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
            info: TensorInfo = choice.meta["tensor"]
            choice.meta["tensor"] = info._replace(shape=("selected",), stride=(1,))
            editor.erase(zero)
    return program
