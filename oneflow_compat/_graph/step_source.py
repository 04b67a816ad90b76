"""The source of a compiled step, from which the functions of its parts are made.

A part is a run of statements of the step's own body. Its function has the same globals, closure and lines in
the file. It takes the variables that earlier statements bound, and returns those that later ones use.
"""

from __future__ import annotations
import __future__

import ast
import copy
import inspect
import linecache
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .errors import CaptureError, CodeLocation

KEPT = "_oneflow_kept"  # a parameter of parts in Python: {variable: its value}
RETURNED = "that returned"  # the mark of a result of the step itself, with which a part ends early
_PREFIX = "_oneflow_"  # of parameters of a head beside those of the step
_MARK = "\0part of a step "
_OF_FRAMES = {"locals", "vars", "dir", "eval", "exec", "super", "__class__"}  # they read variables by name
_UPDATES = {"backward", "step", "unscale_"}
_COROUTINES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_Function = ast.FunctionDef
_Statements = Sequence[ast.stmt]


def ending_of(result: object) -> tuple[str, Any] | None:
    """Return how a part ended: (RETURNED, result of the step) or (its mark, {variable: value}).

    None: `result` is that of a step, because its function is not cut behind.
    """
    if not isinstance(result, tuple) or len(result) != 2 or type(result[0]) is not str:
        return None
    return (result[0][len(_MARK) :], result[1]) if result[0].startswith(_MARK) else None


def has_history(values: Iterable[Any]) -> bool:
    """Whether a tensor among values, or in their lists, tuples and dicts, was computed with a history."""
    pending, seen = list(values), set()
    while pending:
        value = pending.pop()
        if isinstance(value, torch.Tensor):
            if value.grad_fn is not None:
                return True
        elif isinstance(value, (list, tuple, dict)) and id(value) not in seen:
            seen.add(id(value))
            pending += value.values() if isinstance(value, dict) else value
    return False


@dataclass(frozen=True)
class Head:
    """The part of a step that runs as a program."""

    function: types.FunctionType
    takes: tuple[str, ...]  # variables of earlier statements, which are its first arguments
    parameters: tuple[str, ...]  # of these arguments
    unused: frozenset[str]  # parameters of the step whose values it does not use
    binds: frozenset[str]


class StepSource:
    """The statements of a function whose source is at hand."""

    def __init__(self, function: types.FunctionType, definition: _Function, imported: list[str]) -> None:
        """`imported`: the names that imports bind in the file. Python compiles calls of their attributes in
        another way.
        """
        self.function, self.definition, self._imported = function, definition, imported
        code = function.__code__
        self.locals = {*code.co_varnames, *code.co_cellvars}

    @classmethod
    def of(cls, function: object) -> StepSource | None:
        """Return the body of a function of Python, or None if its source is not at hand or is another one."""
        if type(function) is not types.FunctionType or function.__code__.co_flags & _COROUTINES:
            return None
        source = _definition(function.__code__, function.__globals__)
        if source is None or _names_in([source[0]]) & _OF_FRAMES:
            return None
        definition, imported = source
        body = cls(function, definition, imported)
        return body if _is_same_code(body.compiled(definition).__code__, function.__code__) else None

    def _traceback_in(self, error: CaptureError) -> types.TracebackType | None:
        """Return the part of the traceback of an error that is in this function."""
        traceback, own = error.__traceback__, self.function.__code__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if (code.co_filename, code.co_name) == (own.co_filename, own.co_name):
                return traceback
            traceback = traceback.tb_next
        return None

    def _line_in(self, error: CaptureError) -> int | None:
        """Return the line of this function that ran at the cause of an error, or that the error names."""
        traceback, own = self._traceback_in(error), self.function.__code__
        if traceback is not None and not error.stack:
            return traceback.tb_lineno
        for name, line, function in (*error.stack, error.location or ("", 0, "")):
            if (name, function) == (own.co_filename, own.co_name):
                return line
        return None

    def index_of(self, error: CaptureError) -> int | None:
        """Return the index of the statement that raised an error."""
        line = self._line_in(error)
        for index, statement in enumerate(self.definition.body):
            if line is not None and statement.lineno <= line <= (statement.end_lineno or statement.lineno):
                return index
        return None

    def use_of(self, parameter: str, start: int) -> int | None:
        """Return the index of the first statement from `start` on that names the parameter of a head."""
        for index, statement in enumerate(self.definition.body[start:], start):
            if {parameter, parameter.removeprefix(_PREFIX)} & _names_in([statement]):
                return index
        return None

    def updates_from(self, index: int) -> bool:
        """Whether the statements from this one on call backward() or step() themselves."""
        return not _UPDATES.isdisjoint(_attributes(self.definition.body[index:]))

    def is_before_backward(self, index: int) -> bool:
        """Whether backward() is called from this statement on, and not before."""
        body = self.definition.body
        return "backward" in _attributes(body[index:]) and "backward" not in _attributes(body[:index])

    def may_lead(self, end: int, error: CaptureError) -> bool:
        """Whether the statements before `end` can run before the program, as far as a failed capture tells.

        The others compute something, and take no tensor with a history, which a program would not continue.
        """
        first, rest = self.definition.body[:end], self.definition.body[end:]
        if "backward" in _attributes(first) or not any(isinstance(n, ast.Call) for n in _own(rest)):
            return False
        traceback, used = self._traceback_in(error), _names_in(rest)
        is_there = traceback is not None and not error.stack  # not further on
        variables = traceback.tb_frame.f_locals if is_there and traceback is not None else {}
        return not has_history([value for name, value in variables.items() if name in used])

    def location_of(self, index: int) -> CodeLocation:
        code = self.function.__code__
        return code.co_filename, self.definition.body[index].lineno, code.co_name

    def lead(self, start: int, end: int) -> types.FunctionType | None:
        """Return the function of statements that run in Python before the program.

        None: functions made in them share a variable with later statements, or one cannot stand alone.
        """
        body = self.definition.body
        first, rest = body[:end], body[end:]
        own, bound, of_rest = (
            _own(body[start:end]),
            self._bound(first),
            self._bound([*_declared(first), *rest]),
        )
        moved = self._moved(end)
        if bound is None or of_rest is None or _is_shared(own, of_rest):
            return None
        again = _imported(_imports(first)) | {*moved}
        taken = self._bound_or_keywords(body[:start]) & _names_in(body[start:])
        used = (bound | self._keywords(first)) & _names_in(rest)
        late = [s for s in _once(self._moved(start)) if s not in moved.values()]
        statements = [s for s in body[start:end] if s not in moved.values()]
        before = body[:start]
        return self._in_python(
            [
                *_declared(before),
                *_imports(before),
                *_statements(map(self._taking, sorted(taken - again - {*self._moved(start)})), body[start]),
                *late,
                *map(_with_marked_returns, statements),
                *_kept_variables(sorted(used - again), self._certain(end), "", body[end - 1]),
            ]
        )

    def head(self, start: int, end: int | None, mark: str, is_method: bool) -> Head | None:
        """Return the function of the statements from `start` to `end`, which are the program.

        With an end, it returns the mark with the variables that later statements use. None: functions made in
        it share a variable that later statements set, or there is nothing to compute.
        """
        body = self.definition.body
        before, own = body[:start], body[start:end]
        taken = sorted(self._bound_or_keywords(before) & _names_in(own) - self._repeated(start))
        parameters = tuple(map(self._argument, taken))
        arguments = _with_first(self.definition.args, parameters, is_method)
        moved = self._moved(start)
        bound = self._bound([*_once(moved), *own])
        is_empty = all(isinstance(s, (ast.Global, ast.Nonlocal)) or _is_docstring(s) for s in own)
        if is_empty or arguments is None or bound is None:
            return None
        statements = list(own)
        if end is not None:
            used, of_tail = self._used_from(end), self._bound([*_declared(body[:end]), *body[end:]])
            if used is None or of_tail is None or _is_shared(_own(body[:end]), of_tail):
                return None
            here = used & (bound | self._keywords(own)) if start else used
            kept = _kept_variables(sorted(here), self._certain(end), mark, own[-1])
            statements = [*map(_with_marked_returns, own), *kept]
        renaming = [f"{name} = {self._argument(name)}" for name in taken if name in self._parameters()]
        first = [*_declared(before), *_imports(before), *_statements(renaming, own[0]), *_once(moved)]
        statements += self._local([*first, *statements])
        function = self.compiled(self._function(arguments, [*first, *statements]))
        unused = self._parameters() - (_names_in([*first, *own]) - set(taken))
        return Head(function, tuple(taken), parameters, frozenset(unused), frozenset(bound))

    def tail(self, end: int) -> types.FunctionType | None:
        """Return the function of the statements from `end` on, which run in Python after the program."""
        used, first, last = self._used_from(end), self.definition.body[:end], self.definition.body[end:]
        if used is None:
            return None
        taking = _statements(map(self._taking, sorted(used)), last[0])
        return self._in_python([*_declared(first), *_imports(first), *taking, *last])

    def rest(self, start: int) -> types.FunctionType | None:
        """Return the function of all statements behind a lead, for calls without a program."""
        used, first, last = self._used_from(start), self.definition.body[:start], self.definition.body[start:]
        if used is None:
            return None
        moved = self._moved(start)
        taking = _statements(map(self._taking, sorted(used - {*moved})), last[0])
        return self._in_python([*_declared(first), *_imports(first), *taking, *_once(moved), *last])

    def _used_from(self, end: int) -> set[str] | None:
        """Return the variables that the statements from `end` on take, or None if they cannot stand alone.

        They repeat imports, because a module is no result of a program, and get what the caller gave.
        """
        first, last = self.definition.body[:end], self.definition.body[end:]
        bound, imports = self._bound(first), _imports(first)
        bound_otherwise = self._bound([s for s in first if s not in imports])
        if bound is None or bound_otherwise is None or self._bound([*_declared(first), *last]) is None:
            return None
        of_caller = self._parameters() - bound - self._keywords(first)
        return (self.locals & _names_in(last)) - of_caller - (_imported(imports) - bound_otherwise)

    def _repeated(self, start: int) -> set[str]:
        """Return the variables that a head binds itself, although statements before it do."""
        return _imported(_imports(self.definition.body[:start])) | {*self._moved(start)}

    def _moved(self, start: int) -> dict[str, ast.stmt]:
        """Return the statements before `start` that give a constant or an empty container to a variable that
        nothing else there uses. They run at the start of the head.
        """
        first, free = self.definition.body[:start], self.locals - self._parameters()
        found: dict[str, ast.stmt] = {}
        for statement in first:
            names = _assigned_constants(statement)
            others = [other for other in first if other is not statement]
            if names and names <= free - _names_in(others):
                found.update(dict.fromkeys(names, statement))
        return found

    def _argument(self, name: str) -> str:
        """Return the parameter by which a head takes a variable."""
        return _PREFIX + name if name in self._parameters() else name

    def _keywords(self, statements: _Statements) -> set[str]:
        """Return the parameter that is a dict of each call, if statements name it: they may change it."""
        kwarg = self.definition.args.kwarg
        return {kwarg.arg} & _names_in(statements) if kwarg is not None else set()

    def _bound_or_keywords(self, statements: _Statements) -> set[str]:
        return (self._bound(statements) or set()) | self._keywords(statements)

    def _certain(self, end: int) -> set[str]:
        """Return the variables that are bound before `end`, whatever happens."""
        first = self.definition.body[:end]
        of_caller = self._parameters() - self._bound_or_keywords(first)
        return (of_caller | set().union(*map(_certainly_assigned, first))) - _deleted(_own(first))

    def _in_python(self, statements: list[ast.stmt]) -> types.FunctionType:
        """Return a function of the caller's arguments and of variables by name."""
        arguments = copy.deepcopy(self.definition.args)
        arguments.kwonlyargs.append(ast.arg(KEPT))
        arguments.kw_defaults.append(None)
        return self.compiled(self._function(arguments, [*statements, *self._local(statements)]))

    def _local(self, statements: _Statements) -> list[ast.stmt]:
        """Return a statement that runs nothing, and makes the variables of the step local ones of a part."""
        names = sorted((self.locals & _names_in(statements)) - self._parameters())
        return _statements([f"if False: {' = '.join(names)} = None"], statements[-1]) if names else []

    def _taking(self, name: str) -> str:
        """Return the line with which a part takes a variable, if earlier statements have bound it."""
        taking = f"if {name!r} in {KEPT}: {name} = {KEPT}[{name!r}]"
        return f"{taking}\nelse: del {name}" if name in self._parameters() else taking

    def _bound(self, statements: _Statements) -> set[str] | None:
        """Return the variables that statements bind or delete, or None if they do not stand alone."""
        if not statements:
            return set()
        try:
            code = self.compiled(self._function(_arguments([]), list(statements))).__code__
        except SyntaxError:  # a function in them has a nonlocal variable that other statements bind
            return None
        return {*code.co_varnames, *code.co_cellvars}

    def _parameters(self) -> set[str]:
        code = self.function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        return {*code.co_varnames[:count]}

    def _function(self, arguments: ast.arguments, body: list[ast.stmt]) -> _Function:
        function = ast.parse("def f(): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.name, function.args, function.body = self.definition.name, arguments, body
        return ast.copy_location(function, self.definition)

    def compiled(self, definition: _Function) -> types.FunctionType:
        """Compile a function with the globals and the closure of this one."""
        function = self.function
        code = function.__code__
        factory = ast.parse("def f(): pass").body[0]
        assert isinstance(factory, ast.FunctionDef)
        factory.args, factory.body = _arguments(code.co_freevars), [definition]
        imports: list[ast.stmt] = [ast.Import([ast.alias(name)]) for name in self._imported]
        module = ast.fix_missing_locations(ast.Module([*imports, factory], []))
        flags = code.co_flags & __future__.annotations.compiler_flag
        outer = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
        inner = _code_in(_code_in(outer))
        cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        closure = tuple(cells[name] for name in inner.co_freevars)
        if sys.version_info >= (3, 11):
            inner = inner.replace(co_qualname=code.co_qualname)
        compiled = types.FunctionType(inner, function.__globals__, function.__name__, None, closure)
        compiled.__qualname__ = function.__qualname__  # errors name it
        compiled.__defaults__, compiled.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return compiled


def _definition(code: types.CodeType, module: dict[str, Any]) -> tuple[_Function, list[str]] | None:
    """Return the definition of a function without its decorators, and the names that its file imports."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename, module)))
    except SyntaxError:
        return None
    own = [node for statement in tree.body for node in _own_nodes(statement)]
    imported = _imported(node for node in own if isinstance(node, (ast.Import, ast.ImportFrom))) - {"*"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first_line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first_line == code.co_firstlineno:
                node.decorator_list = []
                return node, sorted(imported)
    return None


def _imported(imports: Iterable[ast.Import | ast.ImportFrom]) -> set[str]:
    """Return the names that imports bind."""
    aliases = (alias for node in imports for alias in node.names)
    return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


def _is_same_code(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two functions do the same, so that the source is that of the function."""
    facts = "co_code co_names co_varnames co_freevars co_cellvars".split()
    if any(getattr(a, fact) != getattr(b, fact) for fact in facts) or len(a.co_consts) != len(b.co_consts):
        return False
    return all(
        _is_same_code(x, y) if isinstance(x, types.CodeType) and isinstance(y, types.CodeType) else x == y
        for x, y in zip(a.co_consts, b.co_consts)
    )


def _code_in(code: types.CodeType) -> types.CodeType:
    """Return the code of the only function that is defined in a code."""
    (inner,) = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return inner


def _arguments(names: Iterable[str]) -> ast.arguments:
    arguments = [ast.arg(name) for name in names]
    return ast.arguments([], arguments, None, [], [], None, [])


def _statements(lines: Iterable[str], model: ast.stmt) -> list[ast.stmt]:
    """Return statements with the line of another one."""
    statements = ast.parse("\n".join(lines)).body
    for node in (node for statement in statements for node in ast.walk(statement)):
        ast.copy_location(node, model)
    return statements


def _kept_variables(used: Iterable[str], certain: set[str], mark: str, model: ast.stmt) -> list[ast.stmt]:
    """Return the end of a part: the variables that later statements use, if they are bound."""
    bound = ", ".join(f"{name!r}: {name}" for name in used if name in certain)
    perhaps = [
        f"try: {KEPT}[{name!r}] = {name}\nexcept NameError: pass" for name in used if name not in certain
    ]
    function = "\n".join([f"{KEPT} = {{{bound}}}", *perhaps, f"return {_MARK + mark!r}, {KEPT}"])
    (end,) = _statements(["def f():", *(f"  {line}" for line in function.split("\n"))], model)
    assert isinstance(end, ast.FunctionDef)
    return end.body


def _with_first(arguments: ast.arguments, names: Sequence[str], is_method: bool) -> ast.arguments | None:
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


def _with_marked_returns(statement: ast.stmt) -> ast.stmt:
    marked = _MarkReturns().visit(copy.deepcopy(statement))
    assert isinstance(marked, ast.stmt)
    return marked


class _MarkReturns(ast.NodeTransformer):
    """Let a part say that its result is that of the step: no other part runs after a return in it."""

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.copy_location(ast.Constant(None), node)
        flag = ast.copy_location(ast.Constant(_MARK + RETURNED), node)
        marked = ast.copy_location(ast.Tuple([flag, value], ast.Load()), node)
        return ast.copy_location(ast.Return(marked), node)


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and the nodes in it, without the bodies of functions and classes."""
    pending = [statement]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)


def _own(statements: _Statements) -> list[ast.AST]:
    return [node for statement in statements for node in _own_nodes(statement)]


def _once(moved: dict[str, ast.stmt]) -> list[ast.stmt]:
    """Return the statements, each once."""
    return list(dict.fromkeys(moved.values()))


def _declared(statements: _Statements) -> list[ast.stmt]:
    """Return the declarations of global and nonlocal variables."""
    return [node for node in _own(statements) if isinstance(node, (ast.Global, ast.Nonlocal))]


def _imports(statements: _Statements) -> list[ast.Import | ast.ImportFrom]:
    return [s for s in statements if isinstance(s, (ast.Import, ast.ImportFrom))]


def _is_shared(nodes: list[ast.AST], names: set[str]) -> bool:
    """Whether functions among the nodes refer to one of these variables, or set a variable around them."""
    inner = [node for scope in nodes if isinstance(scope, _SCOPES) for node in ast.walk(scope)]
    return any(
        isinstance(node, ast.Nonlocal) or isinstance(node, ast.Name) and node.id in names for node in inner
    )


def _attributes(statements: _Statements) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _names_in(statements: _Statements) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _assigned_constants(statement: ast.stmt) -> set[str]:
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


def _certainly_assigned(statement: ast.stmt) -> set[str]:
    """Return the variables that a statement of a function's body binds, whatever happens."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)) and statement.value is not None:
        targets = [statement.target]
    else:
        targets = []
    names = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _deleted(nodes: list[ast.AST]) -> set[str]:
    """Return the variables that `del`, or the end of an `except`, unbinds."""
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
    return names | {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
