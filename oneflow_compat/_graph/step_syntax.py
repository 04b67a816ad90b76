"""Statements of a function that are written anew, and what variables they name and bind."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

KEPT = "_oneflow_kept"  # a parameter of parts in Python: {variable: its value}
RETURNED = "that returned"  # the mark of a result of the step itself, with which a part ends early
MARK = "\0part of a step "
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_Statements = Sequence[ast.stmt]


def names_of_imports(imports: Iterable[ast.Import | ast.ImportFrom]) -> set[str]:
    """Return the names that imports bind."""
    aliases = (alias for node in imports for alias in node.names)
    return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


def arguments_of(names: Iterable[str]) -> ast.arguments:
    arguments = [ast.arg(name) for name in names]
    return ast.arguments([], arguments, None, [], [], None, [])


def parsed(lines: Iterable[str], model: ast.stmt) -> list[ast.stmt]:
    """Return statements with the line of another one."""
    statements = ast.parse("\n".join(lines)).body
    for node in (node for statement in statements for node in ast.walk(statement)):
        ast.copy_location(node, model)
    return statements


def kept_variables(used: Iterable[str], certain: set[str], mark: str, model: ast.stmt) -> list[ast.stmt]:
    """Return the end of a part: the variables that later statements use, if they are bound."""
    bound = ", ".join(f"{name!r}: {name}" for name in used if name in certain)
    perhaps = [
        f"try: {KEPT}[{name!r}] = {name}\nexcept NameError: pass" for name in used if name not in certain
    ]
    function = "\n".join([f"{KEPT} = {{{bound}}}", *perhaps, f"return {MARK + mark!r}, {KEPT}"])
    (end,) = parsed(["def f():", *(f"  {line}" for line in function.split("\n"))], model)
    assert isinstance(end, ast.FunctionDef)
    return end.body


def with_first(arguments: ast.arguments, names: Sequence[str], is_method: bool) -> ast.arguments | None:
    """Return parameters with others in front of them, behind `self`; None if `self` has no parameter."""
    changed = copy.deepcopy(arguments)
    if not names:
        return changed
    selves: list[ast.arg] = []
    if is_method:
        positional = changed.posonlyargs or changed.args
        if not positional:
            return None
        selves = [positional.pop(0)]
    changed.posonlyargs = [*selves, *map(ast.arg, names), *changed.posonlyargs]
    return changed


def with_marked_returns(statement: ast.stmt) -> ast.stmt:
    marked = _MarkReturns().visit(copy.deepcopy(statement))
    assert isinstance(marked, ast.stmt)
    return marked


class _MarkReturns(ast.NodeTransformer):
    """Let a part say that its result is that of the step: no other part runs after a return in it."""

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.copy_location(ast.Constant(None), node)
        flag = ast.copy_location(ast.Constant(MARK + RETURNED), node)
        marked = ast.copy_location(ast.Tuple([flag, value], ast.Load()), node)
        return ast.copy_location(ast.Return(marked), node)


def own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and the nodes in it, without the bodies of functions and classes."""
    pending = [statement]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)


def own_nodes_of(statements: _Statements) -> list[ast.AST]:
    return [node for statement in statements for node in own_nodes(statement)]


def once(moved: dict[str, ast.stmt]) -> list[ast.stmt]:
    """Return the statements, each once."""
    return list(dict.fromkeys(moved.values()))


def declarations_in(statements: _Statements) -> list[ast.stmt]:
    """Return the declarations of global and nonlocal variables."""
    return [node for node in own_nodes_of(statements) if isinstance(node, (ast.Global, ast.Nonlocal))]


def imports_in(statements: _Statements) -> list[ast.Import | ast.ImportFrom]:
    return [s for s in statements if isinstance(s, (ast.Import, ast.ImportFrom))]


def is_shared(nodes: list[ast.AST], names: set[str]) -> bool:
    """Whether functions among the nodes refer to one of these variables, or set a variable around them."""
    inner = [node for scope in nodes if isinstance(scope, _SCOPES) for node in ast.walk(scope)]
    return any(
        isinstance(node, ast.Nonlocal) or isinstance(node, ast.Name) and node.id in names for node in inner
    )


def attributes(statements: _Statements) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def names_in(statements: _Statements) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def assigned_constants(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement gives constants, or empty lists and dicts, and nothing else."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return set()
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        targets, values = target.elts, value.elts
    else:
        targets, values = [target], [value]
    names = {node.id for node in targets if isinstance(node, ast.Name)}
    return names if len(names) == len(targets) and all(map(_is_constant, values)) else set()


def _is_constant(value: ast.expr) -> bool:
    is_empty = (
        isinstance(value, ast.List) and not value.elts or isinstance(value, ast.Dict) and not value.keys
    )
    return isinstance(value, ast.Constant) or is_empty


def certainly_assigned(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement of a function's body binds, whatever happens."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)) and statement.value is not None:
        targets = [statement.target]
    else:
        targets = []
    names = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def deleted(nodes: list[ast.AST]) -> set[str]:
    """Return the variables that `del`, or the end of an `except`, unbinds."""
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
    return names | {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
