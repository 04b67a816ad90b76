"""The uses of library names in a file: the binder collects them, the resolver names them."""

import ast
from dataclasses import dataclass, field

from .scopes import Scope

LIBRARIES = ("oneflow", "torch")
# Methods that no other library has: in a file that imports oneflow they are OneFlow's on any value.
METHODS_OF_ONEFLOW = frozenset({"to_consistent", "is_consistent"})
IMPORT_FUNCTIONS = frozenset({"import_module", "importorskip", "__import__"})


@dataclass(frozen=True)
class Use:
    """One use of a library's name in a file."""

    name: str
    line: int
    column: int
    call: ast.Call | None = field(default=None, compare=False, repr=False)
    mentioned: bool = (
        False  # an import, an alias, an annotation or an isinstance() call: the name only has to exist
    )
    guarded: bool = False  # the program handles a missing name
    stored: bool = False  # the program sets the name


@dataclass(eq=False)
class Load:
    """An expression that may be a library's name, and its scope."""

    node: ast.expr
    root: str
    scope: Scope
    in_loop: bool
    call: ast.Call | None = None
    mentioned: bool = False
    guarded: bool = False
    suffix: str = ""


def is_method_of_oneflow(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in METHODS_OF_ONEFLOW


def is_library(path: str) -> bool:
    return path.partition(".")[0] in LIBRARIES


def imported_by_call(node: ast.Call) -> str:
    """Return the module in `importlib.import_module("torch.nn")` and similar calls, else ""."""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if function not in IMPORT_FUNCTIONS or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    module = node.args[0].value
    if not isinstance(module, str) or not is_library(module):
        return ""
    return module.partition(".")[0] if function == "__import__" else module
