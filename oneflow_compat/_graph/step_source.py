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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .step_syntax import (
    KEPT,
    MARK,
    arguments_of,
    assigned_constants,
    attributes,
    certainly_assigned,
    declarations_in,
    deleted,
    imports_in,
    is_docstring,
    is_shared,
    kept_variables,
    names_in,
    names_of_imports,
    once,
    own_nodes,
    own_nodes_of,
    parsed,
    with_first,
    with_marked_returns,
)

if TYPE_CHECKING:
    from .errors import CaptureError, CodeLocation

_PREFIX = "_oneflow_"  # prefix of parameters that a head has beside those of the step
_OF_FRAMES = {"locals", "vars", "dir", "eval", "exec", "super", "__class__"}  # these read variables by name
_UPDATES = {"backward", "step", "unscale_"}
_COROUTINES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_Function = ast.FunctionDef
_Statements = Sequence[ast.stmt]


def ending_of(result: object) -> tuple[str, Any] | None:
    """Return how a part ended: (RETURNED, result of the step) or (its mark, {variable: value}).

    None: `result` is that of a step, because its function is not cut behind.
    """
    if not isinstance(result, tuple) or len(result) != 2 or type(result[0]) is not str:
        return None
    return (result[0][len(MARK) :], result[1]) if result[0].startswith(MARK) else None


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
    parameters: tuple[str, ...]  # names of these arguments
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
        if source is None or names_in([source[0]]) & _OF_FRAMES:
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
            if {parameter, parameter.removeprefix(_PREFIX)} & names_in([statement]):
                return index
        return None

    def updates_from(self, index: int) -> bool:
        """Whether the statements from this one on call backward() or step() themselves."""
        return not _UPDATES.isdisjoint(attributes(self.definition.body[index:]))

    def is_before_backward(self, index: int) -> bool:
        """Whether backward() is called from this statement on, and not before."""
        body = self.definition.body
        return "backward" in attributes(body[index:]) and "backward" not in attributes(body[:index])

    def may_lead(self, end: int, error: CaptureError) -> bool:
        """Whether the statements before `end` can run before the program, as far as a failed capture tells.

        The others compute something, and take no tensor with a history, which a program would not continue.
        """
        first, rest = self.definition.body[:end], self.definition.body[end:]
        if "backward" in attributes(first) or not any(isinstance(n, ast.Call) for n in own_nodes_of(rest)):
            return False
        traceback, used = self._traceback_in(error), names_in(rest)
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
            own_nodes_of(body[start:end]),
            self._bound(first),
            self._bound([*declarations_in(first), *rest]),
        )
        moved = self._moved(end)
        if bound is None or of_rest is None or is_shared(own, of_rest):
            return None
        again = names_of_imports(imports_in(first)) | {*moved}
        taken = self._bound_or_keywords(body[:start]) & names_in(body[start:])
        used = (bound | self._keywords(first)) & names_in(rest)
        late = [s for s in once(self._moved(start)) if s not in moved.values()]
        statements = [s for s in body[start:end] if s not in moved.values()]
        before = body[:start]
        return self._in_python(
            [
                *declarations_in(before),
                *imports_in(before),
                *parsed(map(self._taking, sorted(taken - again - {*self._moved(start)})), body[start]),
                *late,
                *map(with_marked_returns, statements),
                *kept_variables(sorted(used - again), self._certain(end), "", body[end - 1]),
            ]
        )

    def head(self, start: int, end: int | None, mark: str, is_method: bool) -> Head | None:
        """Return the function of the statements from `start` to `end`, which are the program.

        With an end, it returns the mark with the variables that later statements use. None: functions made in
        it share a variable that later statements set, or there is nothing to compute.
        """
        body = self.definition.body
        before, own = body[:start], body[start:end]
        taken = sorted(self._bound_or_keywords(before) & names_in(own) - self._repeated(start))
        parameters = tuple(map(self._argument, taken))
        arguments = with_first(self.definition.args, parameters, is_method)
        moved = self._moved(start)
        bound = self._bound([*once(moved), *own])
        is_empty = all(isinstance(s, (ast.Global, ast.Nonlocal)) or is_docstring(s) for s in own)
        if is_empty or arguments is None or bound is None:
            return None
        statements = list(own)
        if end is not None:
            used, of_tail = (
                self._used_from(end),
                self._bound([*declarations_in(body[:end]), *body[end:]]),
            )
            if used is None or of_tail is None or is_shared(own_nodes_of(body[:end]), of_tail):
                return None
            here = used & (bound | self._keywords(own)) if start else used
            kept = kept_variables(sorted(here), self._certain(end), mark, own[-1])
            statements = [*map(with_marked_returns, own), *kept]
        renaming = [f"{name} = {self._argument(name)}" for name in taken if name in self._parameters()]
        first = [
            *declarations_in(before),
            *imports_in(before),
            *parsed(renaming, own[0]),
            *once(moved),
        ]
        statements += self._local([*first, *statements])
        function = self.compiled(self._function(arguments, [*first, *statements]))
        unused = self._parameters() - (names_in([*first, *own]) - set(taken))
        return Head(function, tuple(taken), parameters, frozenset(unused), frozenset(bound))

    def tail(self, end: int) -> types.FunctionType | None:
        """Return the function of the statements from `end` on, which run in Python after the program."""
        used, first, last = self._used_from(end), self.definition.body[:end], self.definition.body[end:]
        if used is None:
            return None
        taking = parsed(map(self._taking, sorted(used)), last[0])
        return self._in_python([*declarations_in(first), *imports_in(first), *taking, *last])

    def rest(self, start: int) -> types.FunctionType | None:
        """Return the function of all statements behind a lead, for calls without a program."""
        used, first, last = self._used_from(start), self.definition.body[:start], self.definition.body[start:]
        if used is None:
            return None
        moved = self._moved(start)
        taking = parsed(map(self._taking, sorted(used - {*moved})), last[0])
        return self._in_python([*declarations_in(first), *imports_in(first), *taking, *once(moved), *last])

    def _used_from(self, end: int) -> set[str] | None:
        """Return the variables that the statements from `end` on take, or None if they cannot stand alone.

        They repeat imports, because a module is no result of a program, and get what the caller gave.
        """
        first, last = self.definition.body[:end], self.definition.body[end:]
        bound, imports = self._bound(first), imports_in(first)
        bound_otherwise = self._bound([s for s in first if s not in imports])
        if bound is None or bound_otherwise is None or self._bound([*declarations_in(first), *last]) is None:
            return None
        of_caller = self._parameters() - bound - self._keywords(first)
        return (self.locals & names_in(last)) - of_caller - (names_of_imports(imports) - bound_otherwise)

    def _repeated(self, start: int) -> set[str]:
        """Return the variables that a head binds itself, although statements before it do."""
        return names_of_imports(imports_in(self.definition.body[:start])) | {*self._moved(start)}

    def _moved(self, start: int) -> dict[str, ast.stmt]:
        """Return the statements before `start` that give a constant or an empty container to a variable that
        nothing else there uses. They run at the start of the head.
        """
        first, free = self.definition.body[:start], self.locals - self._parameters()
        found: dict[str, ast.stmt] = {}
        for statement in first:
            names = assigned_constants(statement)
            others = [other for other in first if other is not statement]
            if names and names <= free - names_in(others):
                found.update(dict.fromkeys(names, statement))
        return found

    def _argument(self, name: str) -> str:
        """Return the parameter by which a head takes a variable."""
        return _PREFIX + name if name in self._parameters() else name

    def _keywords(self, statements: _Statements) -> set[str]:
        """Return the parameter that is a dict of each call, if statements name it: they may change it."""
        kwarg = self.definition.args.kwarg
        return {kwarg.arg} & names_in(statements) if kwarg is not None else set()

    def _bound_or_keywords(self, statements: _Statements) -> set[str]:
        return (self._bound(statements) or set()) | self._keywords(statements)

    def _certain(self, end: int) -> set[str]:
        """Return the variables that are bound before `end`, whatever happens."""
        first = self.definition.body[:end]
        of_caller = self._parameters() - self._bound_or_keywords(first)
        return (of_caller | set().union(*map(certainly_assigned, first))) - deleted(own_nodes_of(first))

    def _in_python(self, statements: list[ast.stmt]) -> types.FunctionType:
        """Return a function of the caller's arguments and of variables by name."""
        arguments = copy.deepcopy(self.definition.args)
        arguments.kwonlyargs.append(ast.arg(KEPT))
        arguments.kw_defaults.append(None)
        return self.compiled(self._function(arguments, [*statements, *self._local(statements)]))

    def _local(self, statements: _Statements) -> list[ast.stmt]:
        """Return a statement that runs nothing, and makes the variables of the step local ones of a part."""
        names = sorted((self.locals & names_in(statements)) - self._parameters())
        return parsed([f"if False: {' = '.join(names)} = None"], statements[-1]) if names else []

    def _taking(self, name: str) -> str:
        """Return the line with which a part takes a variable, if earlier statements have bound it."""
        taking = f"if {name!r} in {KEPT}: {name} = {KEPT}[{name!r}]"
        return f"{taking}\nelse: del {name}" if name in self._parameters() else taking

    def _bound(self, statements: _Statements) -> set[str] | None:
        """Return the variables that statements bind or delete, or None if they do not stand alone."""
        if not statements:
            return set()
        try:
            code = self.compiled(self._function(arguments_of([]), list(statements))).__code__
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
        factory.args, factory.body = arguments_of(code.co_freevars), [definition]
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
    own = [node for statement in tree.body for node in own_nodes(statement)]
    imported = names_of_imports(node for node in own if isinstance(node, (ast.Import, ast.ImportFrom))) - {
        "*"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first_line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first_line == code.co_firstlineno:
                node.decorator_list = []
                return node, sorted(imported)
    return None


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
