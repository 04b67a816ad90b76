"""Arguments and outputs of build() as flat leaves.

This is torch's pytree, extended to classes of the user's own that torch does not know. An instance of a dict,
list or tuple subclass or of a dataclass (such as PackedSequence) is taken apart and rebuilt without its
constructor. The user's classes are not registered anywhere.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..errors import GraphTypeError

if TYPE_CHECKING:
    from .locations import Keys

tree_unflatten = pytree.tree_unflatten


class _Held:
    """An object of a user's class, between flattening and unflattening."""

    __slots__ = ("cls", "keys", "values", "rest")

    def __init__(self, cls: type, keys: tuple[Hashable, ...], values: list[Any], rest: _Rest) -> None:
        self.cls, self.keys, self.values, self.rest = cls, keys, values, rest


def tree_flatten(tree: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """Return (leaves, spec) as torch's; tree_unflatten(leaves, spec) rebuilds objects of the same classes."""
    try:
        flat, spec = pytree.tree_flatten(tree)
        if any(map(_opens, flat)):
            flat, spec = pytree.tree_flatten(_packed(tree))
    except RecursionError:
        raise GraphTypeError(
            "an argument or a result of build(), or an attribute that it sets, holds a list, tuple or dict"
            " that contains itself, or that is nested too deeply",
            "Put the tensors into a flat list or dict.",
        ) from None
    return flat, spec


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves only."""
    return tree_flatten(tree)[0]


def _opens(leaf: object) -> bool:
    if isinstance(leaf, (torch.Tensor, torch.Size)):
        return False
    return (
        isinstance(leaf, (dict, list, tuple)) or dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)
    )


def _packed(tree: Any) -> Any:
    """Return the tree with every container that pytree treats as a leaf replaced by a _Held."""

    def pack(leaf: Any) -> Any:
        if not _opens(leaf):
            return leaf
        rest = dict(getattr(leaf, "__dict__", ()))
        if isinstance(leaf, dict):
            keys, values = tuple(leaf), list(leaf.values())
        elif isinstance(leaf, (list, tuple)):
            keys, values = (), list(leaf)
        else:
            names = [f.name for f in dataclasses.fields(leaf) if hasattr(leaf, f.name)]
            keys, values = tuple(names), [getattr(leaf, n) for n in names]
            rest = {k: v for k, v in rest.items() if k not in names}
        return _Held(
            type(leaf),
            keys,
            [_packed(v) for v in values],
            _Rest({k: v for k, v in rest.items() if not isinstance(v, torch.Tensor)}),
        )

    return pytree.tree_map(pack, tree)


class _Rest(dict[str, Any]):
    """Further attributes, part of the structure: compared, and never hashed by content."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self)))


def _rebuilt(values: Iterable[Any], context: tuple[Any, ...]) -> Any:
    cls, keys, rest = context
    if issubclass(cls, dict):
        new = cls.__new__(cls)
        base = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
        for key, value in zip(keys, values):
            base.__setitem__(new, key, value)
    elif issubclass(cls, list):
        new = cls.__new__(cls)
        list.extend(new, values)
    elif issubclass(cls, tuple):
        new = tuple.__new__(cls, values)
    else:
        new = object.__new__(cls)
        for key, value in zip(keys, values):
            object.__setattr__(new, key, value)
    if rest:
        new.__dict__.update(rest)
    return new


pytree._private_register_pytree_node(
    _Held,
    lambda opened: (opened.values, (opened.cls, opened.keys, opened.rest)),
    _rebuilt,
    serialized_type_name="oneflow._Held",
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
    if spec.type is _Held:
        keys = spec.context[1] or range(len(children))
    elif hasattr(spec.context, "_fields"):
        keys = spec.context._fields
    else:
        is_dict = isinstance(spec.type, type) and issubclass(spec.type, dict)
        keys = keys_of(spec.context) if is_dict and isinstance(spec.context, (list, tuple)) else ()
        if len(keys) != len(children):
            keys = range(len(children))
    return [(key, *rest) for key, child in zip(keys, children) for rest in paths(child)]


def keys_of(context: Sequence[Any]) -> Sequence[Any]:
    """Return the keys in the context of a dict; a defaultdict keeps its factory beside them."""
    return context[1] if len(context) == 2 and isinstance(context[1], list) else context


def plain_spec(tree_spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return the spec with the user's classes replaced by dict, list and tuple.

    A saved graph can build these without the classes.
    """
    children = [plain_spec(c) for c in tree_spec.children()]
    if tree_spec.is_leaf():
        return tree_spec
    cls, context = tree_spec.type, tree_spec.context
    if cls is _Held:
        cls, keys, _ = context
        if issubclass(cls, list):
            cls, context = list, None
        elif issubclass(cls, tuple):
            cls, context = tuple, None
        else:
            cls, context = dict, list(keys)
    elif hasattr(context, "_fields"):  # a namedtuple
        cls, context = tuple, None
    elif pytree.SUPPORTED_NODES.get(cls) is not None and not cls.__module__.startswith(
        ("torch", "collections", "builtins")
    ):
        if issubclass(cls, dict):
            cls, context = dict, list(keys_of(context))
    return pytree.TreeSpec(cls, context, children)


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
