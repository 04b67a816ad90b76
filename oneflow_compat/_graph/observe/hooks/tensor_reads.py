"""Guards of what build() asks of tensors, real ones and the symbolic ones that stand for arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from ...guards.argument_facts import UNLIKE_ARGUMENT, ArgumentFact, fact_of, is_fact, is_visible
from ...guards.sources import LAYOUT, OF_CAPTURE, Attribute, ClassAttribute, Item
from ...guards.values import is_a, is_fake, is_input
from ...program.python_values import MISSING, tensor_meta
from ..instrumentation.instrument import Site
from .notes import Notes
from .unfollowed import CLASS, IDENTITY, LAZY

_TENSOR_NAMES = frozenset(dir(torch.Tensor))
# what a real tensor may have besides its layout and its elements
_VALUES_OF_TENSORS = frozenset(
    ["requires_grad", "grad_fn", "is_leaf", "retains_grad", "names", "_version", "_backward_hooks"]
)
_UNLIKE_ARGUMENT = "a fact of an argument, which build() does not see"
_HOOKS = "_backward_hooks", "_post_accumulate_grad_hooks"  # backward() calls them
_MARKS = "_is_param", "_is_buffer"  # by which torch tells parameters and buffers from other tensors
_PACKAGES = "torch", "oneflow"
_STORAGES = frozenset(["storage", "untyped_storage", "_typed_storage"])


class TensorReads:
    """Guards facts of tensors, or names those that build() cannot see."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        # (id(node), name) -> (node, name, value, label, site)
        self.argument_facts: dict[tuple[int, str], tuple[Any, str, object, str, Site | None]] = {}
        self.hashed: dict[int, torch.Tensor] = {}  # id -> an argument that is in a set, or a key of a dict

    def tensor_attribute(self, tensor: Any, name: str, site: Site) -> None:
        """An attribute that the user put on a real tensor, or whether it is trained."""
        if not is_a(tensor, torch.Tensor):
            return
        if hasattr(torch.Tensor, name):
            self.tensor_method(name, site)
        if (Attribute(name), id(tensor)) in self.notes.written:
            return
        if is_fake(tensor):
            return self.argument_attribute(tensor, name, site)
        self.layout(tensor, site)
        label = f"{type(tensor).__name__}.{name}"
        if name == "grad":  # a capture keeps gradients aside, and a graph those of parameters
            if not isinstance(tensor, torch.nn.Parameter):
                self.notes.add(Attribute(name), tensor, OF_CAPTURE, label, site)
        elif name in _VALUES_OF_TENSORS:
            self.notes.add(Attribute(name), tensor, getattr(tensor, name), label, site)
        elif name not in _TENSOR_NAMES:
            self.notes.add(Item(name), tensor.__dict__, tensor.__dict__.get(name, MISSING), label, site)

    def layout(self, tensor: torch.Tensor, site: Site) -> None:
        """Guard the shape, strides, dtype and device of a tensor that was there before the capture."""
        if is_lazy(tensor):
            self.notes.warn(site, LAZY)
        elif not is_fake(tensor):
            self.notes.add(LAYOUT, tensor, tensor_meta(tensor), None, site)

    def class_as_key(self, container: Any, site: Site) -> None:
        """Name a look-up by the class of a symbolic tensor where the class of tensors has an entry."""
        if type(container) in (dict, list, tuple, set, frozenset) and torch.Tensor in container:
            self.notes.warn(site, CLASS)

    def tensor_method(self, name: str, site: Site) -> None:
        """Guard what a name of a tensor means; a capture changes some methods while it runs."""
        if ("tensor method", name) not in self.notes.seen:
            self.notes.seen.add(("tensor method", name))
            for cls in torch.Tensor.__mro__[:-1]:
                self.notes.add(ClassAttribute(name), cls, OF_CAPTURE, f"torch.Tensor.{name}", site)
                if name in vars(cls):
                    return

    # -- arguments ---------------------------------------------------------------------
    def identity_of_tensor(self, tensor: torch.Tensor, site: Site) -> None:
        """Guard which tensor it is, or name an argument, which may be another one in each call."""
        if is_input(tensor):
            self.notes.warn(site, IDENTITY)
        elif not is_fake(tensor):
            self.notes.pinned.add(id(tensor))
            self.notes.objects[id(tensor)] = tensor

    def hash_of_argument(self, tensor: torch.Tensor, site: Site) -> None:
        """Name the second argument in sets or among keys of dicts: both may be one tensor."""
        self.hashed[id(tensor)] = tensor
        if len(self.hashed) > 1:
            self.notes.warn(site, IDENTITY)

    def argument_attribute(self, tensor: Any, name: str, site: Site) -> None:
        """A symbolic tensor has the attributes of every tensor, and not what the user put on an argument."""
        if is_input(tensor) and (is_fact(name) or name in UNLIKE_ARGUMENT or name not in _TENSOR_NAMES):
            self.argument_fact(tensor, name, site)

    def argument_method(self, tensor: Any, name: str, site: Site) -> None:
        name = "untyped_storage" if name in _STORAGES else name
        if is_fact(name) and is_input(tensor):
            self.argument_fact(tensor, name, site)

    def argument_fact(self, tensor: Any, name: str, site: Site | None) -> bool:
        """Guard a fact of an argument; return False, after a warning, if build() does not see it."""
        node, argument = tensor._of_node, tensor._of_node.meta.get("value")
        if not is_a(argument, torch.Tensor) or (id(node), name) in self.argument_facts:
            return True
        visible = False
        if name not in UNLIKE_ARGUMENT:
            label = f"{node.target}.{name}"
            self.argument_facts[id(node), name] = node, name, fact_of(argument, name), label, site
            visible = is_visible(argument, tensor, name)
        if not visible and site is not None:
            self.notes.warn(site, _UNLIKE_ARGUMENT)
        return visible

    def class_of_argument(self, function: Any, arguments: Any, site: Site) -> None:
        """Guard the class of an argument, which isinstance() or type() asks for."""
        tensor = arguments[0]
        if not is_input(tensor) or not is_a(tensor._of_node.meta.get("value"), torch.Tensor):
            return
        self.argument_fact(tensor, "class", site)
        if function is isinstance and len(arguments) == 2 and _asks_for_class_of_tensors(arguments[1]):
            for name in _MARKS:
                self.argument_fact(tensor, name, None)
            # "Is it traced?" has the same answer in every capture.
            classes = tuple(c for c in _flat(arguments[1]) if c is not FakeTensor)
            if isinstance(tensor._of_node.meta["value"], classes) is not isinstance(tensor, classes):
                self.notes.warn(site, _UNLIKE_ARGUMENT)

    def note_arguments(self, tensors: Iterable[Any]) -> list[tuple[None, str]]:
        """Guard what decides results although build() does not ask for it: hooks.

        Return (None, text) for what build() does not see: hooks, and classes of the user's.
        """
        unseen: list[tuple[None, str]] = []
        for tensor in filter(is_input, tensors):
            node, argument = tensor._of_node, tensor._of_node.meta.get("value")
            if not is_a(argument, torch.Tensor):
                continue
            cls = type(argument)
            if cls.__module__.partition(".")[0] not in _PACKAGES:
                what = f"the class {cls.__qualname__} of the argument {node.target!r}"
                unseen.append((None, f"{what}, a plain tensor in build()"))
            answers = [self.argument_fact(tensor, name, None) for name in _HOOKS if argument.requires_grad]
            if not all(answers):
                unseen.append((None, f"hooks of the argument {node.target!r}"))
        return unseen


def _flat(classes: object) -> Iterator[Any]:
    """Yield the classes of isinstance(), out of any nesting of tuples."""
    for item in classes if type(classes) is tuple else (classes,):
        if type(item) is tuple:
            yield from _flat(item)
        else:
            yield item


def _asks_for_class_of_tensors(classes: object) -> bool:
    """Whether isinstance() asks for a class of tensors, such as torch.nn.Parameter."""
    if type(classes) is tuple:
        return any(map(_asks_for_class_of_tensors, classes))
    return isinstance(classes, type) and issubclass(classes, torch.Tensor) and classes is not torch.Tensor


def facts_of_arguments(noted: Iterable[Any], tensors: Iterable[Any]) -> tuple[ArgumentFact, ...]:
    """Return the facts with the indices of their arguments.

    `tensors` are the flat arguments of build(), with symbolic tensors among them.
    """
    nodes = [getattr(tensor, "_of_node", None) for tensor in tensors]
    indices = {id(node): index for index, node in enumerate(nodes) if node is not None}
    return tuple(
        ArgumentFact(indices[id(node)], name, value, label, site.code_location if site is not None else None)
        for node, name, value, label, site in noted
        if id(node) in indices
    )
