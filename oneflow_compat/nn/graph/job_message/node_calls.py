"""What a node of a program calls: the name of the operator, its arguments and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .views import Arguments


def _aten_name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "_opname", None) or getattr(node.target, "__name__", None) or node.target)


def operator_name(node: torch.fx.Node) -> str:
    """Return ATen's name of the operator, without the underscore of in-place operators."""
    return _aten_name(node).rstrip("_")


def is_in_place(node: torch.fx.Node) -> bool:
    return _aten_name(node).endswith("_")


def makes_several(node: torch.fx.Node) -> bool:
    schema = schema_of(node)
    if schema is None:
        return False
    returns = schema.returns
    return len(returns) > 1 or isinstance(returns[0].type, torch.ListType)


def positional(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return the positional arguments of a node. torch.fx types each of them as a union of 15 types."""
    return node.args


def schema_of(node: torch.fx.Node) -> Any:
    """Return the schema of an ATen operator; None for another function."""
    return getattr(node.target, "_schema", None)


def arguments_by_name(node: torch.fx.Node) -> Arguments:
    """Return ATen's arguments by name, including omitted ones."""
    named = schema_of(node).arguments
    return {
        **{a.name: a.default_value for a in named},
        **dict(zip((a.name for a in named), positional(node))),
        **node.kwargs,
    }


def argument_at(node: torch.fx.Node, name: str, position: object) -> Any:
    """Return ATen's argument at this position, or the constant; the stride defaults to the window size."""
    if type(position) is not int:
        return position
    arguments = positional(node)
    if position < len(arguments):
        value = arguments[position]
    else:
        omitted = schema_of(node).arguments[position:]
        value = omitted[0].default_value if omitted else None
    return arguments[1] if name == "stride" and not value else value
