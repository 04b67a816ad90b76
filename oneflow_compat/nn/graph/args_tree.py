"""Nested inputs and outputs of a graph as a tree of named nodes.

Lists, tuples, dicts and dataclass instances are inner nodes, anything else is a leaf.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from .graph_repr import LeafText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


__all__ = ["ArgsTree", "NamedArg"]

_UNSET = object()


class NamedArg:
    """A node: its location (prefix, name, index) and its value; an inner node's value holds NamedArgs."""

    def __init__(
        self,
        prefix: str = "",
        name: str | None = None,
        global_index: int = 0,
        tensor_type: type = torch.Tensor,
    ) -> None:
        self._prefix, self._index, self._tensor_type = prefix, global_index, tensor_type
        self._name = str(global_index) if name is None else name
        self._value = _UNSET

    def prefix(self) -> str:
        return self._prefix

    def name(self) -> str:
        return self._name

    def global_index(self) -> int:
        return self._index

    def value(self) -> Any:
        assert self._value is not _UNSET, f"node {self._name} has no value yet: call set_value() first"
        return self._value

    def set_value(self, value: Any) -> None:
        self._value = value

    def is_leaf(self) -> bool:
        return _children(self.value()) is None

    def __repr__(self) -> str:
        value = None if self._value is _UNSET else self._value
        kinds = (
            (self._tensor_type, "TENSOR"),
            (dict, "DICT"),
            (list, "LIST"),
            (tuple, "TUPLE"),
            (type(None), "NONE"),
        )
        type_name = next((name for cls, name in kinds if isinstance(value, cls)), "OPAQUE")
        shown = (
            ""
            if type_name in ("DICT", "LIST", "TUPLE")
            else f", value: {LeafText(value) if type_name == 'TENSOR' else value}"
        )
        return f"(name: {self._name}, idx: {self._index}, type: {type_name}{shown})"


class ArgsTree:
    """`io_args` as a tree; with gen_name=True every node is a NamedArg with the prefix `root_prefix` and its
    path.
    """

    def __init__(
        self,
        io_args: Any,
        gen_name: bool = False,
        root_prefix: str = "",
        root_name: str | None = None,
        tensor_type: type = torch.Tensor,
    ) -> None:
        self._args, self._tensor_type = io_args, tensor_type
        self._named: NamedArg | None = None
        self._root = root_prefix, root_name
        if gen_name:
            self.gen_name()

    def gen_name(self) -> NamedArg:
        """Name every node, in the order of iter_nodes()."""
        count = [0]

        def node(value: Any, prefix: str, name: str | None) -> NamedArg:
            named = NamedArg(prefix, name, count[0], self._tensor_type)
            count[0] += 1
            children = _children(value)
            if children is not None:
                value = _rebuilt(
                    value,
                    [
                        node(v, f"{prefix}.{i}", None if k is None else str(k))
                        for i, (k, v) in enumerate(children)
                    ],
                )
            named.set_value(value)
            return named

        self._named = node(self._args, *self._root)
        return self._named

    def iter_nodes(self) -> Iterator[Any]:
        """Every node, parents first: NamedArgs, or the plain values without names."""
        todo = [self._args if self._named is None else self._named]
        while todo:
            node = todo.pop()
            yield node
            children = _children(node.value() if isinstance(node, NamedArg) else node)
            todo.extend(v for _, v in reversed(children or ()))

    def iter_named_nodes(self) -> Iterator[tuple[str, NamedArg]]:
        """(full name, node) of every node; only with gen_name=True."""
        assert self._named is not None, "iter_named_nodes() needs a tree made with gen_name=True"
        for node in self.iter_nodes():
            yield f"{node.prefix()}_{node.name()}", node

    def map_leaf(self, map_function: Callable[[Any], Any]) -> Any:
        """The arguments with every leaf replaced by map_function(leaf); the leaf is a NamedArg in a named
        tree.
        """

        def mapped(node: Any) -> Any:
            inside = node.value() if isinstance(node, NamedArg) else node
            children = _children(inside)
            return (
                map_function(node) if children is None else _rebuilt(inside, [mapped(v) for _, v in children])
            )

        return mapped(self._args if self._named is None else self._named)

    def map_tuple_leaf(self, map_function: Callable[[Any], Any]) -> Any:
        """map_leaf where a tuple without a container inside is one leaf; only for a tree without names."""
        if self._named is not None:
            raise AssertionError("map_tuple_leaf() is for a tree made without gen_name")

        def mapped(value: Any) -> Any:
            children = _children(value)
            if (
                children is None
                or isinstance(value, tuple)
                and all(_children(v) is None for _, v in children)
            ):
                return map_function(value)
            return _rebuilt(value, [mapped(v) for _, v in children])

        return mapped(self._args)


def _is_dataclass(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """[(key or None, child)] of an inner node, None of a leaf.

    Clients replace _is_dataclass by a function that says no.
    """
    if _is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
    if isinstance(value, dict):
        return list(value.items())
    return [(None, v) for v in value] if isinstance(value, (list, tuple)) else None


def _rebuilt(like: Any, items: Iterable[Any]) -> Any:
    if _is_dataclass(like):
        return dataclasses.replace(like, **dict(zip([k for k, _ in _children(like) or ()], items)))
    if isinstance(like, dict):
        return type(like)(zip(like, items))
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)
