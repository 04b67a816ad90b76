"""The oneflow and torch names that one file uses, resolved by scope.

A name is dotted: "oneflow.nn.Linear". "()" marks a call, so
"oneflow.ones().sum" is the method `sum` of the result of `oneflow.ones()`. Ambiguous names are left out.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from dataclasses import dataclass
from functools import lru_cache

from .binder import Binder
from .lookup import find
from .scopes import Binding, Position, Scope
from .uses import Load, Use, imported_by_call, is_library, is_method_of_oneflow

MAX_CALLS = 8  # calls in one chain of names; longer chains are left out
MAX_DEPTH = 40  # aliases of aliases
MAX_LENGTH = 400  # characters of a name
MAX_MEANINGS = 4  # names that one expression may refer to
MAX_BINDINGS = 60  # statements that may bind a name at one use


@dataclass(frozen=True)
class FileNames:
    """The uses of one file.

    `probed` are the attributes that the file tests with hasattr(), `stored` those that it sets.
    """

    uses: list[Use]
    probed: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()


def names_in(source: str | bytes, filename: str = "<source>") -> FileNames:
    """Return the library names that a source text uses; raise SyntaxError if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the scanned text
        tree = ast.parse(source, filename)
    binder = Binder()
    binder.visit(tree)
    resolver = _Resolver()
    uses = dict.fromkeys(binder.imported)
    roots = binder.library_roots()
    for load in binder.loads:
        names = _uses_of(load, resolver) if load.root in roots else []
        if not names and "oneflow" in binder.libraries:
            names = _uses_of_methods(load)
        uses.update(dict.fromkeys(names))
    binder.release()
    return FileNames(list(uses), frozenset(binder.probed), frozenset(binder.stored))


def _uses_of(load: Load, resolver: _Resolver) -> list[Use]:
    position = (load.node.lineno, load.node.col_offset)
    is_store = not load.suffix and isinstance(getattr(load.node, "ctx", None), (ast.Store, ast.Del))
    names = (path + load.suffix for path in resolver.paths(load.node, load.scope, position, load.in_loop))
    return [
        Use(name, *position, load.call, load.mentioned, load.guarded, is_store)
        for name in names
        if "." in name and not name.endswith("()")
    ]


def _uses_of_methods(load: Load) -> list[Use]:
    """Return the use of a method that only OneFlow's tensors have, on a value of unknown origin."""
    node = load.node
    if load.suffix or not isinstance(node, ast.Attribute) or not is_method_of_oneflow(node):
        return []
    return [Use(f"oneflow.Tensor.{node.attr}", node.lineno, node.col_offset, load.call)]


# --------------------------------------------------------------------------- resolution
class _Resolver:
    """Find the dotted names that an expression refers to.

    There are several if branches bind it differently, and none if the binding is uncertain.
    """

    def __init__(self) -> None:
        self._by_binding: dict[int, tuple[str, ...]] = {}
        self._depth = 0

    def paths(self, node: ast.expr, scope: Scope, position: Position, in_loop: bool) -> tuple[str, ...]:
        suffix: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                suffix.append(f".{node.attr}")
                node = node.value
            elif isinstance(node, ast.Call):
                imported = imported_by_call(node)
                if imported:
                    bases: tuple[str, ...] = (imported,)
                    break
                suffix.append("()")
                node = node.func
            else:
                bases = self._base(node, scope, position, in_loop)
                break
        ending = "".join(reversed(suffix))
        paths = tuple(dict.fromkeys(base + ending for base in bases))
        is_short = all(len(path) <= MAX_LENGTH and path.count("()") <= MAX_CALLS for path in paths)
        return paths if is_short and len(paths) <= MAX_MEANINGS else ()

    def _base(self, node: ast.expr, scope: Scope, position: Position, in_loop: bool) -> tuple[str, ...]:
        """Return the paths of an expression that is neither an attribute nor a call."""
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, position, in_loop)
        if not isinstance(node, ast.IfExp):
            return ()
        branches = [self.paths(branch, scope, position, in_loop) for branch in (node.body, node.orelse)]
        return tuple(path for paths in branches for path in paths) if all(branches) else ()

    def _name(self, name: str, scope: Scope, position: Position, in_loop: bool) -> tuple[str, ...]:
        bindings = scope.bindings_of(name, position, in_loop)
        if not bindings:
            return self._starred(name, scope)
        if len(bindings) > MAX_BINDINGS:
            return ()
        resolved = [(binding, self._binding(binding)) for binding in bindings if not binding.is_none]
        if any(paths and not binding.is_fallback for binding, paths in resolved):
            resolved = [(binding, paths) for binding, paths in resolved if not binding.is_fallback]
        if not all(paths for _, paths in resolved):
            return ()
        return tuple(dict.fromkeys(path for _, paths in resolved for path in paths))

    def _binding(self, binding: Binding) -> tuple[str, ...]:
        if binding.path:
            return (binding.path,)
        expression = binding.value
        if expression is None or self._depth > MAX_DEPTH:
            return ()
        key = id(binding)
        if key not in self._by_binding:
            self._by_binding[key] = ()  # a name that is bound to itself
            self._depth += 1
            at = (expression.lineno, expression.col_offset)
            paths = self.paths(expression, binding.scope, at, in_loop=not binding.certain)
            self._depth -= 1
            self._by_binding[key] = paths
        return self._by_binding[key]

    @staticmethod
    def _starred(name: str, scope: Scope) -> tuple[str, ...]:
        stars = scope.module.stars
        if not stars or hasattr(builtins, name) or not all(is_library(star) for star in stars):
            return ()
        owner = next((star for star in reversed(stars) if name in _public_names(star)), None)
        return (f"{owner}.{name}",) if owner else ()


@lru_cache(maxsize=64)
def _public_names(module: str) -> frozenset[str]:
    """Return the names that `from module import *` binds."""
    target = find("oneflow" + module[module.find(".") :] if "." in module else "oneflow").value
    listed = getattr(target, "__all__", None)
    return frozenset(listed if listed is not None else (n for n in dir(target) if not n.startswith("_")))
