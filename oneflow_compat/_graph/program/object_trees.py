"""Arguments and results that hold objects: as flat leaves, and made again from them.

This extends torch's pytree to objects of any class that has a layout. A spec has these nodes besides torch's:

- `Opened`: an object, or a list, dict or set among objects. Its children are the values of its parts.
- `Same`, `SameLeaf`: the same object, or the same tensor, a second time.
- `Existing`: an object that was there before the capture and that each call uses itself.
- `Method`, `WeakReference`: a method of an object, and a weak reference to one that the tree holds.
- `OfArgument`, `LeafOfArgument`: an object, or a tensor, of the arguments of the call.
"""

from __future__ import annotations

import dis
import functools
import types
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree

from .object_layouts import ITEM, SLOT, Layout, Part, layout_of
from .python_values import is_constant, same_value
from .symbolic import SYMBOLIC_NUMBERS

TreeSpec = pytree.TreeSpec
LEAF = pytree.tree_structure(0)


class Opened:
    """The type of the node of an object that was taken apart."""


class Same:
    """The type of the node of an object that occurs again; the context is its position."""


class SameLeaf:
    """The type of the node of a tensor that occurs again; the context is the index of its leaf."""


class Existing:
    """The type of the node of an object that is used itself; the context is its Identity."""


class OfArgument:
    """The type of the node of an object among the arguments; the context is its position there."""


class LeafOfArgument:
    """The type of the node of a tensor among the arguments; the context is the index of its leaf there."""


class Method:
    """The type of the node of a bound method; the context is the Identity of its function."""


class WeakReference:
    """The type of the node of a weak reference; its child is a reference to an object of the tree."""


class Attribute(str):
    """A name in the path of a leaf that is an attribute and not a key."""

    __slots__ = ()


class Identity:
    """An object that another one equals only if it is the same.

    A function equals another one that the same statement made, if no call could tell them apart: the lambda
    of `lambda x: x * k` that each call of a loader makes with an equal k.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return False
        return self.value is other.value or _are_copies(self.value, other.value)

    def __hash__(self) -> int:
        return id(self.value.__code__ if type(self.value) is types.FunctionType else self.value)

    def __repr__(self) -> str:
        return object.__repr__(self.value)


def _are_copies(one: object, other: object) -> bool:
    """Whether two functions have one code, and equal defaults and variables that cannot change."""
    if type(one) is not types.FunctionType or type(other) is not types.FunctionType:
        return False
    return (
        one.__code__ is other.__code__
        and one.__globals__ is other.__globals__
        and not (one.__dict__ or other.__dict__)
        and not _assigns_variables(one.__code__)
        and _have_same_defaults(one, other)
        and _are_same_constants(_variables(one), _variables(other))
    )


def _have_same_defaults(one: types.FunctionType, other: types.FunctionType) -> bool:
    by_name, others_by_name = one.__kwdefaults__ or {}, other.__kwdefaults__ or {}
    return (
        _are_same_constants(one.__defaults__ or (), other.__defaults__ or ())
        and by_name.keys() == others_by_name.keys()
        and _are_same_constants(by_name.values(), others_by_name.values())
    )


def _are_same_constants(one: Collection[Any], other: Collection[Any]) -> bool:
    return len(one) == len(other) and all(
        a is b or is_constant(a) and is_constant(b) and same_value(a, b) for a, b in zip(one, other)
    )


def _variables(function: types.FunctionType) -> list[Any]:
    """Return the values of the closure. A variable without a value equals none."""
    cells = function.__closure__ or ()
    try:
        return [cell.cell_contents for cell in cells]
    except ValueError:
        return [object() for _ in cells]


@functools.lru_cache(256)
def _assigns_variables(code: types.CodeType) -> bool:
    """Whether a function, or one inside it, assigns a variable of a closure."""
    stores = any(i.opname in ("STORE_DEREF", "DELETE_DEREF") for i in dis.get_instructions(code))
    return stores or any(
        type(value) is types.CodeType and _assigns_variables(value) for value in code.co_consts
    )


def is_code(value: object) -> bool:
    """Whether this is a function, a class or a module of Python, and no method of a value."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    return isinstance(value, (type, types.FunctionType, types.ModuleType))


class Form(NamedTuple):
    """The context of an Opened node: all of an object but the values of its parts."""

    cls: type
    position: int  # number of the object, in the order in which the objects of a tree are met
    parts: tuple[Part, ...]  # parts with a child, in the order of the children
    fixed_contents: Hashable  # see Layout

    @property
    def layout(self) -> Layout:
        layout = layout_of(self.cls)
        assert layout is not None, "an object without a layout was taken apart"
        return layout


def existing(value: object) -> TreeSpec:
    """Return the node of an object that each call uses itself."""
    return TreeSpec(Existing, Identity(value), [])


def path_key(part: Part) -> Any:
    """Return what stands for a part in the path of a leaf."""
    access, key = part
    return Attribute(key.__name__ if access == SLOT else key) if access != ITEM else key


class Flattening:
    """Takes a tree apart that holds objects.

    `opens(value)` tells whether an object is taken apart, and whether a function that it refers to may be
    used itself. `node_of(value)` may return the node of an object or a tensor that needs no leaf, such as one
    of the arguments.
    """

    def __init__(
        self,
        opens: Callable[[Any], bool] = lambda value: True,
        node_of: Callable[[Any], TreeSpec | None] = lambda value: None,
    ) -> None:
        self.opens, self.node_of = opens, node_of
        self.leaves: list[Any] = []
        self.objects: list[Any] = []  # objects by position
        self._positions: dict[int, int] = {}  # id(object) -> its position
        self._indices: dict[int, int] = {}  # id(tensor) -> the index of its leaf
        self._temporary: list[Any] = []  # lists that a flatten function of pytree made: no id is used twice

    def spec_of(self, value: object) -> TreeSpec:
        """Return the structure of a value, and add its leaves."""
        node = self.node_of(value)
        if node is not None:
            return node
        if isinstance(value, torch.Tensor):
            index = self._indices.setdefault(id(value), len(self.leaves))
            return self._leaf(value) if index == len(self.leaves) else TreeSpec(SameLeaf, index, [])
        cls = type(value)
        if cls is not torch.Size and (is_constant(value) or cls in SYMBOLIC_NUMBERS):
            return self._leaf(value)
        return self._reference_of(value) or self._spec_of_object(value)

    def _reference_of(self, value: object) -> TreeSpec | None:
        """Return the node of what refers to an object of the tree, or None."""
        position = self._positions.get(id(value))
        if position is not None:
            return TreeSpec(Same, position, [])
        if type(value) is types.MethodType and self._can_bind(value):
            return TreeSpec(Method, Identity(value.__func__), [self._spec_of_part(value.__self__)])
        if type(value) is weakref.ref and (target := self._target_of(value())) is not None:
            return TreeSpec(WeakReference, None, [target])
        return None

    def _spec_of_object(self, value: object) -> TreeSpec:
        cls = type(value)
        layout = layout_of(cls)
        registered = pytree.SUPPORTED_NODES.get(cls)
        if registered is not None and (layout is None or not layout.is_mutable or layout.is_user_class):
            children, context = registered.flatten_fn(value)
            self._temporary.append(children)
            return TreeSpec(cls, context, [self.spec_of(child) for child in children])
        if layout is None or cls is object or not self.opens(value) or not layout.has_constant_set(value):
            return self._leaf(value)
        return self._open(value, layout)

    def _can_bind(self, method: types.MethodType) -> bool:
        """Whether a method can be bound again. A capture replaces some methods of tensors."""
        function = method.__func__
        return not isinstance(method.__self__, torch.Tensor) and is_code(function) and self.opens(function)

    def _target_of(self, value: object) -> TreeSpec | None:
        """Return the node of an object that something else in the tree holds, or None."""
        position = self._positions.get(id(value))
        return self.node_of(value) if position is None else TreeSpec(Same, position, [])

    def _leaf(self, value: object) -> TreeSpec:
        self.leaves.append(value)
        return LEAF

    def _open(self, value: object, layout: Layout) -> TreeSpec:
        position = len(self.objects)
        self.objects.append(value)
        if layout.is_mutable:  # a tuple inside itself has no end
            self._positions[id(value)] = position
        parts = layout.parts(value)
        children = [self._spec_of_part(content) for _, content in parts]
        form = Form(layout.cls, position, tuple(part for part, _ in parts), layout.fixed_contents(value))
        return TreeSpec(Opened, form, children)

    def _spec_of_part(self, value: object) -> TreeSpec:
        """Functions, classes and modules of Python belong to the code of an object that refers to them."""
        if type(value) is object or is_code(value):
            return existing(value) if self.opens(value) else self._leaf(value)
        return self.spec_of(value)


def flattened_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flattening:
    """Return the leaves and the objects among the arguments of a call."""
    flattening = Flattening()
    flattening.spec_of((args, kwargs))
    return flattening


class Rebuilding:
    """Makes the values of specs again, from leaves and from what they share.

    `objects` are the objects that have been made, by position. `arguments` and `argument_leaves` are those of
    the call.
    """

    def __init__(
        self,
        leaves: Sequence[Any],
        arguments: Sequence[Any] = (),
        argument_leaves: Sequence[Any] = (),
    ) -> None:
        self.leaves, self.arguments, self.argument_leaves = leaves, arguments, argument_leaves
        self.objects: dict[int, Any] = {}
        self.registered: list[Any] = []  # objects of users' classes that torch's pytree made
        self._next = 0

    def value_of(self, spec: TreeSpec) -> Any:
        """Return the value of a spec. The leaves that it has follow those of the previous call."""
        if spec.is_leaf():
            self._next += 1
            return self.leaves[self._next - 1]
        reference = _REFERENCES.get(spec.type)
        if reference is not None:
            return reference(self, spec.context)
        if spec.type is Opened:
            return self._object(spec, spec.context)
        children = [self.value_of(child) for child in spec.children()]
        if spec.type is Method:
            return types.MethodType(spec.context.value, *children)
        if spec.type is WeakReference:
            return weakref.ref(*children)
        value = pytree.SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)
        if not isinstance(value, tuple):
            self.registered.append(value)
        return value

    def _object(self, spec: TreeSpec, form: Form) -> Any:
        layout, position, contents = form.layout, form.position, form.fixed_contents
        if layout.is_mutable:  # the parts of an object may refer to the object
            new = self.objects[position] = layout.empty(contents)
        values = [self.value_of(child) for child in spec.children()]
        if not layout.is_mutable:
            new = self.objects[position] = layout.complete(contents, form.parts, values)
        layout.fill(new, form.parts, values)
        return new


_REFERENCES: Mapping[Any, Callable[[Rebuilding, Any], Any]] = {
    Same: lambda rebuilding, position: rebuilding.objects[position],
    SameLeaf: lambda rebuilding, index: rebuilding.leaves[index],
    Existing: lambda rebuilding, identity: identity.value,
    OfArgument: lambda rebuilding, position: rebuilding.arguments[position],
    LeafOfArgument: lambda rebuilding, index: rebuilding.argument_leaves[index],
}
REFERENCES = (*_REFERENCES, Method, WeakReference)  # no file can hold these
_OWN_NODES = (Opened, *REFERENCES)


def nodes_of(spec: TreeSpec) -> Iterator[TreeSpec]:
    """Yield all nodes of a spec."""
    yield spec
    for child in spec.children():
        yield from nodes_of(child)


def local_code_of(spec: TreeSpec) -> dict[str, Identity]:
    """Return the functions and classes in a spec that a function made, maybe anew for each call."""
    values = [node.context.value for node in nodes_of(spec) if node.type in (Existing, Method)]
    values += [node.context.cls for node in nodes_of(spec) if node.type is Opened]
    return {
        f"{'class' if isinstance(value, type) else 'function'} {value.__qualname__}": Identity(value)
        for value in values
        if isinstance(value, (type, types.FunctionType)) and "<" in value.__qualname__
    }


def has_objects(spec: TreeSpec) -> bool:
    """Whether a spec has nodes that only this module can make again."""
    return any(node.type in _OWN_NODES for node in nodes_of(spec))


def refers_to_arguments(spec: TreeSpec) -> bool:
    """Whether a spec of results has objects among the arguments."""
    return any(node.type is OfArgument for node in nodes_of(spec))


def owners_of_leaves(spec: TreeSpec, owner: type | None = None) -> list[type | None]:
    """Return for each leaf the class of the innermost object of a user's class that has it."""
    if spec.is_leaf():
        return [owner]
    if spec.type is Opened and spec.context.layout.is_user_class:
        owner = spec.context.cls
    return [owner_of_leaf for child in spec.children() for owner_of_leaf in owners_of_leaves(child, owner)]
