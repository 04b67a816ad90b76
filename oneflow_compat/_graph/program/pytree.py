"""Arguments and outputs of build() as flat leaves.

This is torch's pytree, extended to objects of classes that torch does not know (object_trees.py). They are
taken apart and made again without their constructors. The classes are not registered anywhere.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..errors import GraphTypeError
from .object_layouts import layout_of
from .object_trees import (
    REFERENCES,
    Attribute,
    Existing,
    Flattening,
    Method,
    Opened,
    Rebuilding,
    existing,
    has_objects,
    path_key,
)
from .python_values import is_constant
from .symbolic import SYMBOLIC_NUMBERS

if TYPE_CHECKING:
    from .locations import Keys


def tree_flatten(tree: object) -> tuple[list[Any], pytree.TreeSpec]:
    """Return (leaves, spec) as torch's; tree_unflatten(leaves, spec) makes objects of the same classes."""
    return _flattened(tree, can_be_opened, lambda value: True)


def flatten_containers(
    tree: object, is_kept: Callable[[Any], bool] = lambda value: False
) -> tuple[list[Any], pytree.TreeSpec]:
    """Do the same for what an attribute holds: only containers and dataclasses are taken apart.

    `is_kept(container)`: the tree gets the container itself again.
    """
    opens = is_container_or_dataclass
    is_leaf = lambda value: has_attributes(value) or is_kept(value)
    return _flattened(tree, opens, opens, is_leaf, lambda value: existing(value) if is_kept(value) else None)


def tree_leaves(tree: object) -> list[Any]:
    """Return the leaves only."""
    return tree_flatten(tree)[0]


def tree_unflatten(leaves: Sequence[Any], spec: pytree.TreeSpec) -> Any:
    """Return the tree of a spec with these leaves."""
    return Rebuilding(leaves).value_of(spec) if has_objects(spec) else pytree.tree_unflatten(leaves, spec)


def _flattened(
    tree: object,
    needs_opening: Callable[[Any], bool],
    opens: Callable[[Any], bool],
    is_leaf: Callable[[Any], bool] | None = None,
    node_of: Callable[[Any], pytree.TreeSpec | None] = lambda value: None,
) -> tuple[list[Any], pytree.TreeSpec]:
    """Return (leaves, spec) of a tree. It is torch's pytree, unless some leaf of that needs opening."""
    try:
        flat, spec = pytree.tree_flatten(tree, is_leaf)
        if any(map(needs_opening, flat)):
            flattening = Flattening(opens, node_of)
            spec = flattening.spec_of(tree)
            flat = flattening.leaves
    except RecursionError:
        raise nested_too_deeply() from None
    return flat, spec


def nested_too_deeply() -> GraphTypeError:
    """Return the error of a tree that has no end."""
    return GraphTypeError(
        "an argument or a result of build(), or an attribute that it sets, holds a list, tuple or dict"
        " that contains itself, or that is nested too deeply",
        "Put the tensors into a flat list or dict.",
    )


def can_be_opened(leaf: object) -> bool:
    """Whether a leaf of torch's pytree is an object that can be taken apart."""
    if isinstance(leaf, torch.Tensor) or is_constant(leaf) or type(leaf) in SYMBOLIC_NUMBERS:
        return False
    return type(leaf) is not object and layout_of(type(leaf)) is not None


def has_attributes(value: object) -> bool:
    """Whether a value is a dict with attributes, as of state_dict(), which the pytree of torch would drop."""
    return type(value) is collections.OrderedDict and bool(vars(value))


def is_container_or_dataclass(leaf: object) -> bool:
    if isinstance(leaf, (torch.Tensor, torch.Size)):
        return False
    return (
        isinstance(leaf, (dict, list, tuple)) or dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)
    )


def _size(values: Iterable[Any], context: None) -> torch.Size | tuple[Any, ...]:
    return torch.Size(values) if all(type(v) is int for v in values) else tuple(values)


class _Size:
    """Stands for torch.Size in a spec.

    Unflattening gives a torch.Size if all sizes are numbers; torch's own node gives a tuple.
    """


pytree._private_register_pytree_node(
    _Size, lambda size: (list(size), None), _size, serialized_type_name="oneflow._Size"
)


def with_sizes(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return the spec with nodes of torch.Size changed so that unflattening gives torch.Size."""
    if spec.is_leaf():
        return spec
    children = [with_sizes(c) for c in spec.children()]
    if spec.type is torch.Size:
        return pytree.TreeSpec(_Size, None, children)
    return (
        pytree.TreeSpec(spec.type, spec.context, children)
        if any(a is not b for a, b in zip(children, spec.children()))
        else spec
    )


def paths(spec: pytree.TreeSpec) -> list[Keys]:
    """Return for each leaf the keys and indices that lead to it."""
    if spec.is_leaf():
        return [()]
    children = spec.children()
    keys: Sequence[Any]
    if spec.type is Opened:
        keys = [path_key(part) for part in spec.context.parts]
    elif hasattr(spec.context, "_fields"):
        keys = spec.context._fields
    else:
        is_dict = isinstance(spec.type, type) and issubclass(spec.type, dict)
        keys = keys_of(spec.context) if is_dict and isinstance(spec.context, (list, tuple)) else ()
        if len(keys) != len(children):
            keys = range(len(children))
    return [(key, *rest) for key, child in zip(keys, children) for rest in paths(child)]


def path_text(keys: Keys) -> str:
    """Return a readable path of a leaf, such as [0]['x'].layers."""
    return "".join(f".{key}" if isinstance(key, Attribute) else f"[{key!r}]" for key in keys)


def keys_of(context: Sequence[Any]) -> Sequence[Any]:
    """Return the keys in the context of a dict; a defaultdict keeps its factory beside them."""
    return context[1] if len(context) == 2 and isinstance(context[1], list) else context


def plain_spec(tree_spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return the spec with the user's classes replaced by dict, list and tuple.

    A saved graph can build these without the classes.
    """
    if tree_spec.type in REFERENCES:
        raise GraphTypeError(
            "an object occurs twice among the arguments or results of build(), or is older than the call",
            "A file cannot hold this: return the object once, or a copy of it.",
        )
    if tree_spec.type is Opened:
        return _plain_object(tree_spec)
    children = [plain_spec(c) for c in tree_spec.children()]
    if tree_spec.is_leaf():
        return tree_spec
    cls, context = tree_spec.type, tree_spec.context
    if hasattr(context, "_fields"):  # a namedtuple
        cls, context = tuple, None
    elif pytree.SUPPORTED_NODES.get(cls) is not None and not cls.__module__.startswith(
        ("torch", "collections", "builtins")
    ):
        if issubclass(cls, dict):
            cls, context = dict, list(keys_of(context))
    return pytree.TreeSpec(cls, context, children)


def _plain_object(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return the spec of an object as a list, a tuple or a dict, without functions and classes."""
    pairs = zip(spec.context.parts, spec.children())
    code = (Existing, Method)
    kept = [(path_key(part), plain_spec(child)) for part, child in pairs if child.type not in code]
    layout = spec.context.layout
    if not layout.is_user_class:  # a state_dict() is compared by its entries only
        kept = [(key, child) for key, child in kept if not isinstance(key, Attribute)]
    keys, children = [str(k) if isinstance(k, Attribute) else k for k, _ in kept], [c for _, c in kept]
    if layout.container is None or layout.is_mapping:
        return pytree.TreeSpec(dict, keys, children)
    return pytree.TreeSpec(list if layout.is_mutable else tuple, None, children)


def argument_names(spec: pytree.TreeSpec, positional: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name of the argument, name of the leaf) of each leaf of (args, kwargs).

    `positional` are the names of the positional arguments as far as they have any.
    """
    names = []
    for part, *path in paths(spec):  # part 0 is args, part 1 is kwargs
        keys = [str(key) for key in path]
        if part == 0 and keys and int(keys[0]) < len(positional):
            keys[0] = positional[int(keys[0])]
        keys = ["".join(c if c.isalnum() else "_" for c in key) for key in keys]
        names.append((_identifier(keys[0]), _identifier("_".join(keys))))
    return names


def positional_names(build: Callable[..., Any]) -> list[str]:
    """Return the names of the positional parameters of build(), or none if it has no signature."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _identifier(name: str) -> str:
    return name if name and not name[0].isdigit() else f"arg{name}"
