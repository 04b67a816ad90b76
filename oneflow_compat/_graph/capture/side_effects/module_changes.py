"""What build() changes in modules and objects, and what each run of the program does instead."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ...errors import CaptureError
from ...program.captured import StoredAttribute
from ...program.live_numbers import copy_of_number
from ...program.python_values import MISSING, is_constant, same_value
from ...program.pytree import flatten_containers, is_container_or_dataclass, with_sizes
from ...program.shared_containers import containers_in
from ...program.symbolic import is_run_value
from ..patches.patching import forget, log
from .snapshots import INTERNAL, Before, Snapshot, compare, holds_symbols, holds_tensors

if TYPE_CHECKING:
    from torch.nn import Module

    from ...observe.hooks.writes import Store


_ENGINE = __package__.partition(".capture")[0]  # objects of the engine are not walked
_PLAIN = (int, float, bool, str, type(None))
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


class ModuleChanges:
    """Put buffers and attributes back that build() bound to symbolic tensors. Each run binds them anew.

    So the old tensors keep their values, as in eager mode, and so do numbers and flags.
    """

    def __init__(self, modules: Any, owner: Any) -> None:
        self.roots = [*(module for _, module in modules), *([owner] if owner is not None else [])]
        self.snapshot = Snapshot()
        self.before, self.add, self.restore = self.snapshot.before, self.snapshot.add, self.snapshot.restore
        self.stores: list[Any] = []  # (container, key, value with symbolic tensors)

    def __enter__(self) -> Any:
        log(self.snapshot.restore_everything)
        for owner in self.roots:
            self.add(owner)
        return self

    @property
    def owners(self) -> list[Any]:
        """The modules that build() used, and the object that build() belongs to."""
        return [before.owner for before in self.before.values()]

    def compare(self) -> None:
        """Fill `stores` with what is new."""
        for before in self.before.values():
            self._refuse_new_parameter(before)
            self._compare_buffers(before)
            self._compare_attributes(before)
        self._store_created_objects()

    @staticmethod
    def _refuse_new_parameter(before: Before) -> None:
        name = before.assigned_parameter()
        if name is not None:
            raise CaptureError(
                f"build() assigns the parameter {name!r} of a {type(before.owner).__name__}",
                "Write into the parameter (copy_), or assign it outside.",
            )

    def _compare_buffers(self, before: Any) -> None:
        if isinstance(before.owner, torch.nn.Module):
            buffers = before.owner._buffers
            for key, new in buffers.items():
                self._compare(buffers, key, before.buffers.get(key), new)

    def _compare_attributes(self, before: Any) -> None:
        attributes = before.owner.__dict__
        for key, new in attributes.items():
            if key in INTERNAL:
                continue
            old = before.attributes.get(key)
            if new is old and key in before.contents:
                compare(new, before.contents[key], self._compare_element)
            else:
                self._compare(attributes, key, old, new)

    def _compare_element(self, container: Any, key: Any, old: Any, new: Any, is_put_back: bool) -> None:
        """Compare an element of a list or dict. A run stores each new one if the old ones are put back."""
        if not is_put_back or holds_tensors(new):
            self._compare(container, key, old, new)
        elif old is MISSING or not same_value(old, new):
            self._store_constants(container, key, new)

    def _compare(self, container: Any, key: Any, old: object, new: object) -> None:
        """Note the new value, if the run must store it."""
        if new is old:
            return
        if type(new) in _PLAIN:
            is_stored = type(new) is not type(old) or new != old
        else:
            is_stored = holds_tensors(new)
        if is_stored:
            self.stores.append((container, key, new))
        elif isinstance(old, torch.Tensor) and type(new) not in _PLAIN:
            self._store_constants(container, key, new)
        else:
            return
        # a tensor from before the call is no symbol, and must be taken out as well
        self.snapshot.late.add((id(container), key))

    def _store_constants(self, container: Any, key: Any, new: Any) -> None:
        if not all(is_run_value(leaf) or is_constant(leaf) for leaf in flatten_containers(new)[0]):
            raise CaptureError(
                f"build() keeps a {type(new).__name__} in a {type(container).__name__} in an attribute,"
                " beside a tensor or a number of one",
                "Keep it in another attribute.",
            )
        self.stores.append((container, key, new))

    def _store_created_objects(self) -> None:
        """Store the fake tensors in modules and objects that build() created and bound."""
        stored_objects: set[Any] = set()
        for container, key, value in self._bound():
            symbols = {id(o): list(_symbols_of(o)) for o in _created_objects(value, self.before)}
            if not any(symbols.values()):
                continue
            for created, entries in symbols.items():
                if created not in stored_objects:
                    self.stores.extend(entries)
            stored_objects.update(symbols)
            self.snapshot.late.add((id(container), key))
            if not holds_symbols(value):  # else it is stored already
                self.stores.append((container, key, value))

    def stored_attributes(self) -> list[StoredAttribute]:
        """Return what each run stores in attributes, and put the attributes from before build() back."""
        attributes = []
        older = self._older_containers()
        for container, key, value in self.stores:
            values, spec = flatten_containers(value, lambda value: id(value) in older)
            opens = lambda value: is_container_or_dataclass(value) and id(value) not in older
            parts = containers_in(value, opens)
            attributes.append(StoredAttribute(container, key, tuple(values), with_sizes(spec), False, parts))
        self.restore()
        return [  # the lists have their elements from before build() again
            replace(a, appends=type(a.container) is list and a.key >= len(a.container)) for a in attributes
        ]

    def _older_containers(self) -> set[int]:
        """Return the ids of the lists and dicts that attributes held before build()."""
        values = (value for before in self.before.values() for value in before.attributes.values())
        return {id(value) for value in values if type(value) in (list, dict)}

    def store_created(self, modules: Iterable[torch.nn.Module]) -> None:
        """Store real tensors after each run in modules that build() created and returns."""
        for module in modules:
            for created in _created_objects(module, self.before):
                self.stores.extend(_symbols_of(created))

    def _bound(self) -> Iterator[Any]:
        """Yield (container, key, value) of attributes and modules that build() put into existing modules."""
        for owner, children in self.snapshot.children:
            yield from ((owner._modules, k, v) for k, v in owner._modules.items() if v is not children.get(k))
        for before in self.before.values():
            attributes = before.owner.__dict__
            yield from (
                (attributes, k, v)
                for k, v in attributes.items()
                if k not in INTERNAL and v is not before.attributes.get(k)
            )

    def __exit__(self, error_class: Any, *error: Any) -> None:
        self.restore(error_class is not None)
        forget(self.snapshot.restore_everything)


def stored_outside(
    stores: Iterable[Store], results: Iterable[Any]
) -> tuple[list[StoredAttribute], dict[int, torch.Tensor]]:
    """Return what each run stores in containers that belong to no module and not to the graph.

    A tensor that is stored twice is one object. Return also {id of a stored tensor: the result that it is}.
    """
    stored, tensors = [], {}
    for store in stores:
        leaves = []
        for leaf in store.leaves:
            if not isinstance(leaf, torch.Tensor):
                leaves.append(copy_of_number(leaf))
                continue
            if id(leaf) not in tensors:
                with torch.no_grad():  # others may hold what build() stored: then it has no value there
                    tensors[id(leaf)] = leaf.detach()
            leaves.append(tensors[id(leaf)])
        spec, parts = with_sizes(store.spec), store.containers
        stored.append(StoredAttribute(store.container, store.key, tuple(leaves), spec, store.appends, parts))
    return stored, {id(tensors[id(result)]): result for result in results if id(result) in tensors}


def _created_objects(value: Any, existing: Any) -> Iterator[Any]:
    """Yield the modules and other Python objects nested in a value, except those with an id in `existing`."""
    pending, seen = [value], {}
    while pending:
        value = pending.pop()
        if (
            id(value) in seen
            or id(value) in existing
            or isinstance(value, (torch.Tensor, type, *_CODE))
            or type(value).__module__.startswith(_ENGINE)
        ):
            continue
        seen[id(value)] = value
        if type(value) in pytree.SUPPORTED_NODES:
            pending.extend(pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0])
        elif hasattr(value, "__dict__"):
            yield value
            pending.extend(value.__dict__.values())  # a module's children as well


def _symbols_of(instance: Any) -> Iterator[tuple[Any, ...]]:
    """Yield (container, key, value) of the symbolic tensors of a module or of another object."""
    containers = [(instance.__dict__, {k: v for k, v in instance.__dict__.items() if k not in INTERNAL})]
    if isinstance(instance, torch.nn.Module):
        containers += [(_Parameters(instance), instance._parameters), (instance._buffers, instance._buffers)]
    return (
        (container, key, value)
        for container, entries in containers
        for key, value in entries.items()
        if holds_symbols(value)
    )


class _Parameters:
    """The parameters of a module that build() created: what is stored becomes one."""

    def __init__(self, module: Module) -> None:
        self.parameters: dict[str, Any] = module._parameters

    def __getitem__(self, key: Any) -> Any:
        return self.parameters[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parameters[key] = torch.nn.Parameter(value, self.parameters[key].requires_grad)
