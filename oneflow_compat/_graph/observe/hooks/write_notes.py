"""The notes of what build() writes, with what was there before."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from ...._public_module import own_names
from ...code_origins import is_of_standard_library, is_of_this_package
from ...guards.counters import passes_on
from ...guards.sources import CELL, CONTENTS, Attribute, Contains, Element, Item
from ...guards.values import FREE, attributes_of, contents, is_a, is_fake, is_input
from ...program.python_values import MISSING, is_python_class
from ..instrumentation.instrument import Site
from ..instrumentation.policy import fills_for_good
from .notes import ANY_KEY, Notes
from .option_writes import OptionWrite, is_group, running_lines
from .unfollowed import ARGUMENT_ATTRIBUTE, uncompared_array, unfollowed_object
from .writes import Write, place, undo

# of a class of dicts whose attributes are its items: `__setattr__ = dict.__setitem__`
_ITEM_SETTERS = (dict.__setitem__, collections.OrderedDict.__setitem__)


def _in_class(instance: object, name: str) -> Any:
    """Return what the class of an object has under a name, or None."""
    return next((vars(cls)[name] for cls in type(instance).__mro__ if name in vars(cls)), None)


def _is_set_in_c(instance: object, name: str) -> bool:
    """Whether an assignment goes to a setter in C, as that of `function.__code__`, and not into a dict."""
    if is_a(instance, torch.Tensor):
        return False
    setter = type(_in_class(instance, name))
    return setter is not property and not is_python_class(setter) and hasattr(setter, "__set__")


class WriteNotes:
    """The writes of one capture, and the containers as they were before."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.snapshots: dict[Any, Any] = {}  # id(container) -> contents before build() changed it
        self.places: set[Any] = set()  # (id(owner), key) of what build() wrote and no dict has
        self.noted: list[Write] = []  # with what was there before
        self.filled: list[Write] = []  # of caches, which stay filled unless the capture ends in an error
        # functions that keep their results, and how often they had computed one before each call
        self.caches_before: list[tuple[Any, int]] = []
        self.elements_read: set[int] = set()  # ids of lists that build() changed, and read without a guard
        self.rearranged: set[int] = set()  # ids of lists that build() changed in another way than at the end
        self.option_writes: dict[int, OptionWrite] = {}  # id of a group of an optimizer -> its first write
        self.is_before_model: Callable[[], bool] = lambda: False  # whether build() has used no parameter yet

    def unnoted(self) -> list[Write]:
        """Return the changes of code that is not observed: np.add.at() changes its argument."""
        noted = {id(write.owner) for write in self.noted if write.key is None}
        noted |= self.notes.complete
        guards = (guard for guard in self.notes.guards.values() if guard.source is CONTENTS)
        writes = (Write.of_guard(guard) for guard in guards if id(guard.owner) not in noted and guard.site)
        return [write for write in writes if _is_of_program(write) and write.changed(_is_never_followed)]

    def take_filled(self, objects_of_build: Collection[int]) -> list[Write]:
        """Return the writes that filled caches of older objects, and forget all of them."""
        filled, self.filled = self.filled, []
        return [write for write in filled if id(write.owner) not in objects_of_build]

    def undo(self) -> None:
        """Take back all that build() has changed."""
        undo([*self.filled, *self.noted, *self.unnoted()], self.caches_before)

    def store_attribute(self, instance: Any, name: str, site: Site) -> None:
        if is_a(instance, torch.nn.Module):
            self.notes.note_module(instance)
        if is_a(instance, torch.Tensor) and not hasattr(torch.Tensor, name) and is_input(instance):
            return self.notes.warn(site, ARGUMENT_ATTRIBUTE)
        if is_a(instance, dict) and _in_class(instance, "__setattr__") in _ITEM_SETTERS:
            return self.store_item(instance, name, site)
        if name == "requires_grad" and is_a(instance, torch.Tensor):
            return self.store_requires_grad(instance, site)
        attributes = own_names(instance) if is_a(instance, types.ModuleType) else attributes_of(instance)
        if _is_set_in_c(instance, name):
            attributes = None
        if attributes is not None:
            self.store_item(attributes, name, site)
        self.notes.written.add((Attribute(name), id(instance)))
        if attributes is None:
            self.before_write_of_place(instance, name, site)
        self.assign(instance, name, site)
        self.notes.objects[id(instance)] = instance

    def store_requires_grad(self, tensor: torch.Tensor, site: Site) -> None:
        """Note that build() freezes or thaws a tensor, which it does not compute itself."""
        if not is_fake(tensor):
            self.before_write_of_place(tensor, "requires_grad", site)
            self.assign(tensor, "requires_grad", site)

    def store_cell(self, cell: object, site: Site) -> None:
        self.before_write_of_place(cell, CELL, site)
        self.assign(cell, None, site)

    def store_item(self, container: object, key: object, site: Site) -> None:
        self.before_write(container, site)
        if not is_a(container, dict):
            self.rearranged.add(id(container))
        try:
            self.notes.written.update((source(key), id(container)) for source in (Item, Element, Contains))
        except TypeError:  # an unhashable key: a slice
            key = ANY_KEY
        self.assign(container, key if is_a(container, dict) else ANY_KEY, site)

    def store_contents(self, container: object, site: Site, appends: bool = False) -> None:
        """Note a change of a container. `appends`: elements come to its end."""
        self.before_write(container, site)
        if not appends:
            self.rearranged.add(id(container))
        self.assign(container, ANY_KEY, site)

    def has_filled_caches(self) -> bool:
        """Whether code of build() ran in a function that will not run it again."""
        return any(function.cache_info().misses > misses for function, misses in self.caches_before)

    def assign(self, owner: object, key: object, site: Site) -> None:
        """Note an assignment, unless it is a step of a counter."""
        if not (site.counts or passes_on(site.code)):
            self.notes.assigned.add((id(owner), key))

    def before_write(self, container: object, site: Site) -> None:
        """Remember the contents of a container before build() changes it."""
        if is_group(container) and id(container) not in self.option_writes:
            write = OptionWrite(site.code_location, running_lines(), self.is_before_model())
            self.option_writes[id(container)] = write
        if id(container) in self.snapshots or type(container) in FREE:
            return
        self.notes.objects[id(container)] = container
        what = uncompared_array(container) if is_a(container, np.ndarray) else None
        picture = contents(container) if what is None else MISSING
        if picture is not MISSING:
            self.snapshots[id(container)] = picture
            self.note_write(Write(container, None, picture, site))
            return
        what = what or unfollowed_object(container)
        if what is not None:
            self.notes.no_guard(container, site, f"{what} that build() writes")

    def before_write_of_place(self, owner: object, key: object, site: Site) -> None:
        """Remember the value of a slot, of an attribute of a class, or of a variable of a closure."""
        if (id(owner), key) not in self.places:
            self.places.add((id(owner), key))
            self.notes.objects[id(owner)] = owner
            self.note_write(place(owner, key, site))

    def note_write(self, write: Write) -> None:
        """Note a write of code that belongs to the program, and does not fill a cache of a library.

        A list is no cache: add_param_group() appends to the groups of an optimizer.
        """
        if id(write.owner) in self.notes.complete:
            return
        if _is_of_program(write):
            self.noted.append(write)
        elif is_of_standard_library(write.site.code.co_filename):  # torch and this package fill in once only
            self.filled.append(write)


def _is_of_program(write: Write) -> bool:
    """Whether code of the program made it, and not code that fills a cache of a library."""
    code = write.site.code
    fills_cache = fills_for_good(code) and not is_a(write.owner, list)
    return not fills_cache and not is_of_this_package(code.co_filename)


def _is_never_followed(owner: int, key: object) -> bool:
    return False
