"""The bindings of every scope of a file, and the expressions in it that may be names of a library."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Callable

from .scopes import START, Binding, Position, Scope
from .uses import Load, Use, imported_by_call, is_library, is_method_of_oneflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_LIBRARY = "<library>"
IMPORT_ERRORS = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
)
OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}


class Binder(ast.NodeVisitor):
    """Record the bindings of every scope and the expressions that may be names of a library."""

    def __init__(self) -> None:
        self.scope = Scope("module")
        self.loads: list[Load] = []
        self.imported: list[Use] = []
        self.libraries: set[str] = set()
        self.probed: set[str] = set()
        self.stored: set[str] = set()
        self._scopes = [self.scope]
        self._roots: list[tuple[str, str]] = []  # (name, root of its value)
        self._visitors: dict[type, Callable[..., Any]] = {}
        self._branches = 0
        self._loops = 0
        self._guards = 0
        self._mentions = 0
        self._fallback = False

    def visit(self, node: ast.AST) -> None:
        """Visit a node through a cached method, because visits take most of the time of a scan."""
        cls = node.__class__
        visitor = self._visitors.get(cls)
        if visitor is None:
            visitor = self._visitors[cls] = getattr(self, f"visit_{cls.__name__}", self.generic_visit)
        visitor(node)

    def generic_visit(self, node: ast.AST) -> None:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST):
                self.visit(value)

    # ---- bindings
    def bind(self, name: str, position: Position, **what: Any) -> None:
        scope = self.scope.home_of(name)
        remote = scope is not self.scope
        binding = Binding(
            position,
            self.scope,
            certain=not self._branches and not remote,
            is_remote=remote,
            is_fallback=self._fallback,
            **what,
        )
        scope.bindings.setdefault(name, []).append(binding)
        if binding.path or binding.value is not None:
            self._roots.append((name, _LIBRARY if binding.path else _root(binding.value)))

    def library_roots(self) -> frozenset[str]:
        """Return the names that may refer to a library or to an object from one.

        Other loads need no resolution.
        """
        bound_to = defaultdict(set)
        for name, root in self._roots:
            bound_to[root].add(name)
        roots = {load.root for load in self.loads} if self.scope.stars else set()
        waiting = [_LIBRARY]
        while waiting:
            root = waiting.pop()
            roots.add(root)
            waiting.extend(bound_to.pop(root, ()))
        return frozenset(roots)

    def release(self) -> None:
        """Break the reference cycles, so that the syntax tree is freed without the garbage collector."""
        self._visitors.clear()
        for scope in self._scopes:
            scope.bindings.clear()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bind(node.id, (node.lineno, node.col_offset))
        elif isinstance(node.ctx, ast.Load):
            self.load(node)

    def visit_Constant(self, node: ast.AST) -> None:
        """Constants and contexts hold no names."""

    visit_Load = visit_Store = visit_Del = visit_Constant

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            is_ours = is_library(alias.name)
            self.libraries.add(root)
            path = (alias.name if alias.asname else root) if is_ours else ""
            self.bind(alias.asname or root, _end(node), path=path)
            if is_ours and "." in alias.name:
                self._import_use(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module if node.level == 0 and node.module else ""
        self.libraries.add(module.partition(".")[0])
        for alias in node.names:
            path = f"{module}.{alias.name}" if is_library(module) else ""
            if alias.name == "*":
                self.scope.module.stars.append(module)
                path = module if path and "." in module else ""
            else:
                self.bind(alias.asname or alias.name, _end(node), path=path)
            if path:
                self._import_use(path, node)

    def _import_use(self, path: str, node: ast.stmt) -> None:
        self.imported.append(
            Use(path, node.lineno, node.col_offset, mentioned=True, guarded=bool(self._guards))
        )

    def visit_Assign(self, node: ast.Assign) -> None:
        is_alias = len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        self._visit_value(node.value, is_alias)
        for target in node.targets:
            self._assign(target, node.value, _end(node))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._mention(node.annotation)
        if node.value is not None:
            self._visit_value(node.value, isinstance(node.target, ast.Name))
            self._assign(node.target, node.value, _end(node))
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        home = self.scope
        while self.scope.sort == "comprehension" and self.scope.parent is not None:
            self.scope = self.scope.parent
        self._branches += 1  # the expression may not be evaluated
        self.bind(node.target.id, _end(node), value=node.value)
        self._branches -= 1
        self.scope = home

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._operator(node.target, node.op, node, in_place=True)
        if not isinstance(node.target, ast.Name):  # x += y keeps the meaning of x
            self.visit(node.target)
        self.visit(node.value)

    def _assign(self, target: ast.expr, value: ast.expr, position: Position) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, position, value=value)
        elif (
            isinstance(target, (ast.Tuple, ast.List))
            and isinstance(value, (ast.Tuple, ast.List))
            and len(target.elts) == len(value.elts)
            and not any(isinstance(item, ast.Starred) for item in (*target.elts, *value.elts))
        ):
            for inner, item in zip(target.elts, value.elts):
                self._assign(inner, item, position)
        else:
            self.visit(target)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.declare(node.names, is_global=True)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.declare(node.names, is_global=False)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self._mention(node.type)
        if node.name:
            self.bind(node.name, (node.lineno, node.col_offset))
        self._visit_all(node.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.bind(node.name, (node.lineno, node.col_offset))
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # type: ignore[assignment]

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bind(node.rest, (node.lineno, node.col_offset))
        self.generic_visit(node)

    # ---- branches
    def _visit_branch(self, statements: Iterable[ast.AST], loop: bool = False) -> None:
        self._branches += 1
        self._loops += loop
        self._visit_all(statements)
        self._branches -= 1
        self._loops -= loop

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        guarded = _is_type_checking(node.test)
        self._guards += guarded
        self._visit_branch(node.body)
        self._guards -= guarded
        self._visit_branch(node.orelse)

    def visit_For(self, node: Any) -> None:
        self.visit(node.iter)
        self._visit_branch([node.target, *node.body], loop=True)
        self._visit_branch(node.orelse)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self._visit_branch([node.test, *node.body], loop=True)
        self._visit_branch(node.orelse)

    def visit_Try(self, node: Any) -> None:
        guarded = any(_catches_import_error(handler) for handler in node.handlers)
        self._guards += guarded
        self._visit_branch(node.body)
        self._guards -= guarded
        for handler in node.handlers:
            outer, self._fallback = self._fallback, self._fallback or _catches_import_error(handler)
            self._visit_branch([handler])
            self._fallback = outer
        self._visit_branch([*node.orelse, *node.finalbody])

    visit_TryStar = visit_Try

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._visit_branch(node.cases)

    # ---- scopes
    def _inside(self, sort: str, visit: Callable[[], None]) -> None:
        outer = self.scope, self._branches, self._loops
        self.scope = Scope(sort, self.scope)
        self._scopes.append(self.scope)
        if sort != "comprehension":
            self._branches = self._loops = 0
        else:
            self._loops += 1
        visit()
        self.scope, self._branches, self._loops = outer

    def visit_FunctionDef(self, node: Any) -> None:
        self._visit_all([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
        for argument in _arguments(node.args):
            if argument.annotation is not None:
                self._mention(argument.annotation)
        if node.returns is not None:
            self._mention(node.returns)
        self.bind(node.name, (node.lineno, node.col_offset))
        self._inside("function", lambda: self._function_body(node.args, node.body))

    visit_AsyncFunctionDef = visit_FunctionDef

    def _function_body(self, arguments: ast.arguments, body: list[ast.stmt]) -> None:
        for argument in _arguments(arguments):
            self.bind(argument.arg, START)
        self._declare_first(body)
        self._visit_all(body)

    def _declare_first(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self.visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        self._inside(
            "function",
            lambda: self._function_body(node.args, [ast.copy_location(ast.Expr(node.body), node.body)]),
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self.bind(node.name, (node.lineno, node.col_offset))
        self._inside("class", lambda: self._visit_all(node.body))

    def visit_ListComp(self, node: Any) -> None:
        outermost, *inner = node.generators
        self.visit(outermost.iter)

        def body() -> None:
            self._visit_all([outermost.target, *outermost.ifs, *inner])
            self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

        self._inside("comprehension", body)

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._visit_all([node.iter, node.target, *node.ifs])

    # ---- loads
    def load(self, node: ast.expr, call: ast.Call | None = None, suffix: str = "") -> None:
        root = node.id if isinstance(node, ast.Name) else _root(node)
        if root or is_method_of_oneflow(node):
            self.loads.append(
                Load(
                    node,
                    root,
                    self.scope,
                    bool(self._loops),
                    call,
                    bool(self._mentions),
                    bool(self._guards),
                    suffix,
                )
            )

    def _mention(self, node: ast.expr) -> None:
        self._mentions += 1
        self.visit(node)
        self._mentions -= 1

    def _visit_value(self, value: ast.expr, is_alias: bool) -> None:
        if is_alias and isinstance(value, (ast.Name, ast.Attribute)):
            self._mention(value)
        else:
            self.visit(value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.stored.add(node.attr)
        self._chain(node, None)

    def _chain(self, node: ast.expr, call: ast.Call | None) -> None:
        self.load(node, call)
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            self.visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, (ast.Attribute, ast.Name)):
            self._chain(function, node)
        else:
            self.visit(function)
        name = function.id if isinstance(function, ast.Name) else ""
        if (
            name in ("hasattr", "getattr", "setattr")
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
        ):
            (self.stored if name == "setattr" else self.probed).add(str(node.args[1].value))
        for index, argument in enumerate(node.args):
            if name in ("isinstance", "issubclass") and index == 1:
                self._mention(argument)
            else:
                self.visit(argument)
        self._visit_all(node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operator(node.left, node.op, node, in_place=False)
        self.generic_visit(node)

    def _operator(self, operand: ast.expr, operator: ast.operator, node: ast.AST, in_place: bool) -> None:
        if type(operator) in OPERATORS and isinstance(operand, (ast.Name, ast.Attribute, ast.Call)):
            self.load(operand, suffix=f".__{'i' * in_place}{OPERATORS[type(operator)]}__")


def _root(node: ast.expr | None) -> str:
    """Return the name at the start of a chain.

    Return `_LIBRARY` for an import by a call and for alternatives, and "" for other expressions.
    """
    while True:
        if isinstance(node, ast.Attribute):
            node = node.value
        elif isinstance(node, ast.Call):
            if imported_by_call(node):
                return _LIBRARY
            node = node.func
        elif isinstance(node, ast.Name):
            return node.id
        else:
            return _LIBRARY if isinstance(node, ast.IfExp) else ""


def _end(node: Any) -> Position:
    return (node.end_lineno, node.end_col_offset)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    return [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, (arguments.vararg, arguments.kwarg)),
    ]


def _is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any((getattr(t, "id", "") or getattr(t, "attr", "")) in IMPORT_ERRORS for t in types)
