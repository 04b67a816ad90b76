"""A compiled step that is cut in two: a head, which runs as a program, and a tail, which runs in Python.

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)      # the head
        loss.backward()
        optimizer.step()
        if loss.item() < best.loss:              # the tail
            best.keep(loss.item(), model)
        return loss

The engine cuts a step before a statement that no program can hold: it needs the value of a tensor, prints, or
calls code that no guard follows. Head and tail are functions of the same source lines, variables of closures
and globals. The head returns the variables that the tail uses. The tail runs after all effects of the head,
as in eager mode, so an error in it leaves what eager mode leaves.

A cut lies between statements of the step's own body. A tensor whose backward() has not run cannot cross it,
because the results of a program have no history (capture/results/histories.py refuses it). Then the values
that the step branches on are outcomes that the program assumes and tests (capture/values/symbolic_sizes.py).
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import RaisedInBuild, TooManyBranches, first_line
from .explanations import of_cut

if TYPE_CHECKING:
    from .errors import CaptureError, CodeLocation
    from .explanations import Explanation

_MARK = "\0head "
_RETURNED = _MARK + "that returned"
_KEPT = "_oneflow_kept"  # a variable of head and tail: {name of a variable that the tail uses: its value}
_OF_FRAMES = {"locals", "vars", "dir", "eval", "exec", "super", "__class__"}  # they read variables by name
_UPDATES = {"backward", "step", "unscale_"}
_COROUTINES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_Function = ast.FunctionDef


@dataclass(frozen=True)
class Adapted:
    """What changed after a capture raised an error."""

    explanation: Explanation | None  # of the cut, if there is one
    branches_on_floats: bool
    is_tried_again: bool  # whether the call is captured again; else it runs in eager mode


class CutStep:
    """A step, whole or cut. `given` makes a step with fewer arguments of the step or of its head."""

    def __init__(self, step: Callable[..., Any], given: Callable[[Any], Callable[..., Any]]) -> None:
        self.step, self._given = step, given
        self._head = given(step)
        self._tails: dict[str, Callable[..., Any]] = {}  # by the mark that a head puts beside its variables
        self.is_cut = False
        self._index: int | None = None  # of the first statement of the tail
        self._refused: set[int] = set()  # statements before which a cut was taken back
        self.location: CodeLocation | None = None  # of that statement
        self._facts: tuple[Any, ...] = ()
        self._cause = ""  # the error that led to the cut
        self._reasons: dict[str, str] = {}  # error -> why calls run in eager mode

    @functools.cached_property
    def _body(self) -> _Body | None:
        return _Body.of(getattr(self.step, "__func__", self.step))

    def as_function(self) -> Callable[..., Any]:
        """Return the function that a capture and eager calls run: the step, or its head."""

        @functools.wraps(self._given(self.step))
        def build(*args: Any, **kwargs: Any) -> Any:
            return self._head(*args, **kwargs)

        return build

    def adapt(self, error: CaptureError, branches_on_floats: bool) -> Adapted | None:
        """Cut before the statement that raised an error, or let the step branch on floats.

        Return None if the step stays as it is: then the call runs in eager mode.
        """
        if isinstance(error, (RaisedInBuild, TooManyBranches)):
            return None
        if self._cut_before(error, behind_update=not branches_on_floats):
            self._cause = str(error)
            return Adapted(of_cut(error, self.location), branches_on_floats, is_tried_again=True)
        if branches_on_floats and not self.is_cut:
            return None
        if self.is_cut:
            reason = f"{self._cause}\n  It cannot run behind the program: {first_line(error)}"
            self._reasons.update(dict.fromkeys([self._cause, str(error)], reason))
        self.join()
        return Adapted(None, branches_on_floats=True, is_tried_again=not branches_on_floats)

    def reason_of(self, error: CaptureError) -> str:
        """Return why a call runs in eager mode, given the error of its capture."""
        return self._reasons.get(str(error), str(error))

    def _cut_before(self, error: CaptureError, behind_update: bool) -> bool:
        """Cut before the statement that raised an error. Return False if that is not possible.

        `behind_update`: only if the tail calls no backward() and no step() itself.
        """
        body = self._body
        index = body.index_of(error) if body is not None else None
        if body is None or index is None or index < 1 or index in self._refused:
            return False
        mark = f"{_MARK}{len(self._tails)}"
        is_behind_cut = self._index is not None and index >= self._index
        is_early = behind_update and body.updates_from(index) or body.is_before_backward(index)
        functions = None if is_behind_cut or is_early else body.cut(index, mark)
        if functions is None:
            return False
        head, tail = functions
        self._facts = _facts_of(self.step)
        if isinstance(self.step, types.MethodType):
            head, tail = (types.MethodType(function, self.step.__self__) for function in (head, tail))
        self._head, self._tails[mark] = self._given(head), self._given(tail)
        self._index, self.is_cut = index, True
        self.location = body.location_of(index)
        return True

    def is_changed(self) -> bool:
        """Whether the step has other code or defaults than its head and tail, which are then dropped."""
        if not self.is_cut or self._facts == _facts_of(self.step):
            return False
        self.join()
        self._refused.clear()
        vars(self).pop("_body", None)
        return True

    def join(self) -> None:
        """Take the cut back, for good."""
        if self._index is not None:
            self._refused.add(self._index)
        self._head, self._index, self.location = self._given(self.step), None, None
        self.is_cut = False

    def finish(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the step returns, given what as_function() returned; run the tail of a head."""
        variables = variables_of_head(result)
        if variables is not None:
            return self._tails[result[0]](*args, **kwargs, **{_KEPT: variables})
        return result[1] if _is_marked(result) else result


def _is_marked(result: Any) -> bool:
    is_pair = type(result) is tuple and len(result) == 2 and type(result[0]) is str
    return is_pair and result[0].startswith(_MARK)


def variables_of_head(result: Any) -> dict[str, Any] | None:
    """Return the variables that the tail takes from a head, or None for the result of a step."""
    return result[1] if _is_marked(result) and result[0] != _RETURNED else None


def _facts_of(step: Any) -> tuple[Any, ...]:
    """Return what assignments to the attributes of a function change."""
    function = getattr(step, "__func__", step)
    return function.__code__, function.__defaults__, function.__kwdefaults__


class _Body:
    """The statements of a function whose source is at hand."""

    def __init__(self, function: types.FunctionType, definition: _Function, imported: list[str]) -> None:
        """`imported`: the names that imports bind in the file. Python compiles calls of their attributes in
        another way.
        """
        self.function, self.definition, self._imported = function, definition, imported
        code = function.__code__
        self.locals = {*code.co_varnames, *code.co_cellvars}

    @classmethod
    def of(cls, function: Any) -> _Body | None:
        """Return the body of a function of Python, or None if its source is not at hand or is another one."""
        if type(function) is not types.FunctionType or function.__code__.co_flags & _COROUTINES:
            return None
        source = _definition(function.__code__, function.__globals__)
        if source is None or _names(source[0]) & _OF_FRAMES:
            return None
        definition, imported = source
        body = cls(function, definition, imported)
        return body if _is_same_code(body.compiled(definition).__code__, function.__code__) else None

    def _line_in(self, error: CaptureError) -> int | None:
        """Return the line of this function in the traceback of an error, or the one that the error names."""
        traceback, own = error.__traceback__, self.function.__code__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if (code.co_filename, code.co_name) == (own.co_filename, own.co_name):
                return traceback.tb_lineno
            traceback = traceback.tb_next
        name, line, function = error.location or ("", 0, "")
        return line if (name, function) == (own.co_filename, own.co_name) else None

    def index_of(self, error: CaptureError) -> int | None:
        """Return the index of the statement that raised an error."""
        line = self._line_in(error)
        for index, statement in enumerate(self.definition.body):
            if line is not None and statement.lineno <= line <= (statement.end_lineno or statement.lineno):
                return index
        return None

    def updates_from(self, index: int) -> bool:
        """Whether the statements from this one on call backward() or step() themselves."""
        return not _UPDATES.isdisjoint(_attributes(self.definition.body[index:]))

    def is_before_backward(self, index: int) -> bool:
        """Whether backward() is called from this statement on, and not before."""
        body = self.definition.body
        return "backward" in _attributes(body[index:]) and "backward" not in _attributes(body[:index])

    def location_of(self, index: int) -> CodeLocation:
        code = self.function.__code__
        return code.co_filename, self.definition.body[index].lineno, code.co_name

    def cut(self, index: int, mark: str) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
        """Return head and tail, or None if functions made in the head share a variable that the tail sets.

        The head returns the mark beside its variables.
        """
        first, last = self.definition.body[:index], self.definition.body[index:]
        if all(isinstance(s, (ast.Global, ast.Nonlocal)) or _is_docstring(s) for s in first):
            return None
        own = [node for statement in first for node in _own_nodes(statement)]
        declared: list[ast.stmt] = [n for n in own if isinstance(n, (ast.Global, ast.Nonlocal))]
        bound, of_tail = self._bound(first), self._bound([*declared, *last])
        if bound is None or of_tail is None or _is_shared(own, of_tail):
            return None
        # the tail repeats imports, because a module is no result of a program, and gets what the caller gave
        imports = [s for s in first if isinstance(s, (ast.Import, ast.ImportFrom))]
        bound_otherwise = self._bound([s for s in first if s not in imports]) or set()
        kwarg = self.definition.args.kwarg  # a dict of each call
        of_caller = self._parameters() - bound - ({kwarg.arg} if kwarg is not None else set())
        again = of_caller | (_imported(imports) - bound_otherwise)
        used = sorted((self.locals & set().union(*map(_names, last))) - again)
        certain = (of_caller | set().union(*map(_certainly_assigned, first))) - _deleted(own)
        marked = [_MarkReturns().visit(copy.deepcopy(s)) for s in first]
        head = self._function(
            self.definition.args, [*marked, *_kept_variables(used, certain, mark, first[-1])]
        )
        taking = _statements(map(self._taking, used), last[0])
        arguments = copy.deepcopy(self.definition.args)
        arguments.kwonlyargs.append(ast.arg(_KEPT))
        arguments.kw_defaults.append(None)
        tail = self._function(arguments, [*declared, *imports, *taking, *last])
        return self.compiled(head), self.compiled(tail)

    def _taking(self, name: str) -> str:
        """Return the line with which a tail takes a variable of the head, if the head has bound it."""
        taking = f"if {name!r} in {_KEPT}: {name} = {_KEPT}[{name!r}]"
        return f"{taking}\nelse: del {name}" if name in self._parameters() else taking

    def _bound(self, statements: list[ast.stmt]) -> set[str] | None:
        """Return the variables that statements bind or delete, or None if they do not stand alone."""
        try:
            code = self.compiled(self._function(_arguments([]), statements)).__code__
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


def _kept_variables(used: list[str], certain: set[str], mark: str, model: ast.stmt) -> list[ast.stmt]:
    """Return the end of a head: the variables that the tail uses, if they are bound."""
    bound = ", ".join(f"{name!r}: {name}" for name in used if name in certain)
    perhaps = [
        f"try: {_KEPT}[{name!r}] = {name}\nexcept NameError: pass" for name in used if name not in certain
    ]
    function = "\n".join([f"{_KEPT} = {{{bound}}}", *perhaps, f"return {mark!r}, {_KEPT}"])
    (end,) = _statements(["def f():", *(f"  {line}" for line in function.split("\n"))], model)
    assert isinstance(end, ast.FunctionDef)
    return end.body


class _MarkReturns(ast.NodeTransformer):
    """Let a head say that its result is that of the step: no tail runs after a return in it."""

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.copy_location(ast.Constant(None), node)
        flag = ast.copy_location(ast.Constant(_RETURNED), node)
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


def _is_shared(nodes: list[ast.AST], names: set[str]) -> bool:
    """Whether functions among the nodes refer to one of these variables, or set a variable around them."""
    inner = [node for scope in nodes if isinstance(scope, _SCOPES) for node in ast.walk(scope)]
    return any(
        isinstance(node, ast.Nonlocal) or isinstance(node, ast.Name) and node.id in names for node in inner
    )


def _attributes(statements: list[ast.stmt]) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


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
