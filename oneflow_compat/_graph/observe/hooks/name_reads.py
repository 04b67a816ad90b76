"""The hooks of names: globals, variables of closures, and modules that an import statement gets."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

from ...guards.sources import CELL, OF_CAPTURE, Item
from ...program.python_values import MISSING

if TYPE_CHECKING:
    from ..instrumentation.instrument import Site
    from .notes import Notes


class NameReads:
    """Guards what a name means."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def global_name(self, scope: dict[str, Any], name: str, site: Site) -> None:
        if not site.counts:
            self.notes.seen.add(("global", id(scope), name))
        self.notes.add(Item(name), scope, scope.get(name, MISSING), name, site)
        if name not in scope:
            module = scope.get("__builtins__", builtins)
            names = module if type(module) is dict else vars(module)
            self.notes.add(Item(name), names, OF_CAPTURE, name, site)

    def cell(self, cell: types.CellType, site: Site) -> None:
        value: Any
        try:
            value = cell.cell_contents
        except ValueError:  # a variable that was deleted, or is not assigned yet
            value = MISSING
        self.notes.add(CELL, cell, value, site.name, site)

    def imported_module(self, scope: dict[str, Any], name: str, level: int, site: Site) -> None:
        """Guard which module an import statement gets, if it was imported before."""
        if level:
            name = importlib.util.resolve_name("." * level + name, scope.get("__package__") or "")
        while name:
            self.notes.add(Item(name), sys.modules, sys.modules.get(name, MISSING), f"import {name}", site)
            name = name.rpartition(".")[0]
