"""The scopes of one file: which statement binds a name, and whether that binding reaches a use.

Python's own rules apply: a class body is invisible to the functions inside it, a comprehension has a scope of
its own, `global` and `nonlocal` bind elsewhere. Positions are (line, column).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Iterator

Position = tuple[int, int]
START: Position = (0, 0)
TOO_MANY = 500  # bindings of one name in one scope; with more, all of them are considered


@dataclass(frozen=True, eq=False)
class Binding:
    """One statement that gives a name its value.

    `path` is set for an import, `value` for `name = expression`; neither is set if the value cannot be told.
    `certain` means that the statement runs whenever its scope runs.
    """

    position: Position
    scope: Scope
    path: str = ""
    value: ast.expr | None = None
    certain: bool = False
    is_remote: bool = False  # bound by another scope, through `global` or `nonlocal`
    is_fallback: bool = False  # bound in the handler of a failed import

    @property
    def is_none(self) -> bool:
        return isinstance(self.value, ast.Constant) and self.value.value is None


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension with the bindings of its names."""

    sort: str  # "module", "class", "function" or "comprehension"
    parent: Scope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    redirected: dict[str, Scope] = field(default_factory=dict)  # names declared `global` or `nonlocal`
    stars: list[str] = field(default_factory=list)  # modules of `from x import *`

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def home_of(self, name: str) -> Scope:
        """Return the scope in which a statement of this scope binds `name`."""
        return self.redirected.get(name, self)

    def declare(self, names: list[str], is_global: bool) -> None:
        for name in names:
            self.redirected[name] = self.module if is_global else self._enclosing_function(name)

    def _enclosing_function(self, name: str) -> Scope:
        scope = self.parent
        while scope is not None and scope.parent is not None:
            if scope.sort == "function" and name in scope.bindings:
                return scope
            scope = scope.parent
        return self.module

    def bindings_of(self, name: str, position: Position, in_loop: bool) -> list[Binding]:
        """Return the bindings that may give `name` its value at `position` of this scope.

        The list is empty if the name is not bound.
        """
        if name in self.redirected:
            return self.redirected[name].bindings.get(name, [])
        deferred = False
        for scope in self._visible():
            bindings = scope.bindings.get(name, [])
            if scope.sort == "class" and all(binding.position > position for binding in bindings):
                bindings = []
            if bindings:
                return bindings if deferred else reaching(bindings, position, in_loop)
            deferred = deferred or scope.sort != "comprehension"
        return []

    def _visible(self) -> Iterator[Scope]:
        yield self
        scope = self.parent
        while scope is not None:
            if scope.sort != "class":
                yield scope
            scope = scope.parent


def reaching(bindings: list[Binding], position: Position, in_loop: bool) -> list[Binding]:
    """Return the bindings of one scope that may hold at `position` of the same scope."""
    if len(bindings) == 1:
        return bindings if bindings[0].position <= position or in_loop or bindings[0].is_remote else []
    if len(bindings) > TOO_MANY:
        return bindings
    latest = max(
        (b.position for b in bindings if b.certain and not b.is_remote and b.position <= position),
        default=START,
    )
    return [
        b
        for b in bindings
        if b.is_remote or (b.position >= latest and (b.position <= position or (in_loop and not b.certain)))
    ]
