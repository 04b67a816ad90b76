"""Torch's functions over trees of containers, without the garbage that they leave."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from unittest import mock

from torch.utils import _pytree as pytree

IsLeaf: TypeAlias = Callable[[Any], bool] | None


@contextlib.contextmanager
def plain_trees() -> Iterator[None]:
    """Flatten and map trees without a function that is made in each call and refers to itself.

    Inductor flattens 50,000 trees for ResNet-50, most of them a single leaf. What torch (2.13) makes for each
    is a third of all that the garbage collector finds then.
    """
    with (
        mock.patch.object(pytree, "tree_flatten", _flattened),
        mock.patch.object(pytree, "tree_map", _mapped),
    ):
        yield


_tree_map = pytree.tree_map


def _flattened(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], pytree.TreeSpec]:
    leaves: list[Any] = []
    return leaves, _structure(tree, leaves, is_leaf)


def _structure(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> pytree.TreeSpec:
    """Return the structure of a tree, and append its leaves."""
    if pytree.tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return pytree._LEAF_SPEC
    node_type = pytree._get_node_type(tree)
    children, context = pytree.SUPPORTED_NODES[node_type].flatten_fn(tree)
    return pytree.TreeSpec(node_type, context, [_structure(child, leaves, is_leaf) for child in children])


def _mapped(function: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    if rests:
        return _tree_map(function, tree, *rests, is_leaf=is_leaf)
    if pytree.tree_is_leaf(tree, is_leaf):
        return function(tree)
    node = pytree.SUPPORTED_NODES[pytree._get_node_type(tree)]
    children, context = node.flatten_fn(tree)
    return node.unflatten_fn([_mapped(function, child, is_leaf=is_leaf) for child in children], context)
