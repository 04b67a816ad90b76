"""Straight-line Python for a Program: the text that users read, and the function that the aten backend runs.

Programs also come from files. reader.py and operators.py check them. As a second defense, only identifiers,
literals and one-line comments become code here.
"""

from __future__ import annotations

import functools
import keyword
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.fx
from torch._prims_common import suggest_memory_format

from .direct_calls import direct_call, with_spread_list
from .operators import first_lasting

if TYPE_CHECKING:
    from torch.fx.node import Argument as FxArgument
    from torch.fx.node import Target


class PrintableProgram(Protocol):
    """What becomes a function: a Program, or the graph of a guard."""

    @property
    def name(self) -> str: ...

    @property
    def graph(self) -> torch.fx.Graph: ...

    @property
    def constants(self) -> dict[str, torch.Tensor]: ...


class ProgramWithSlots(PrintableProgram, Protocol):
    """A Program, whose inputs have names for people."""

    @property
    def slots(self) -> Iterable[object]: ...

    @property
    def pipeline(self) -> object: ...


Labels = Callable[[Any, torch.fx.Node], Any]
ARITHMETIC: dict[Any, str] = {  # Python function -> how it is written
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.truediv: "{} / {}",
    operator.pow: "{} ** {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.neg: "-{}",
    operator.abs: "abs({})",
}


class _Names:
    """Bind values that have no literal form to names of the generated function's globals."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.globals: dict[str, Any] = {}
        self._of: dict[tuple[str, int], str] = {}
        self._local = {node.name for node in graph.nodes}

    def bind(self, prefix: str, value: object) -> str:
        name = self._of.get((prefix, id(value)))
        if name is None:
            name = f"{prefix}{len(self.globals)}"
            while name in self._local:
                name += "_"
            self._of[prefix, id(value)] = name
            self.globals[name] = value
        return name


def _fast(node: torch.fx.Node) -> object:
    """Return the C function behind an operator, which saves one Python frame per call."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return IN_ONE_FORMAT.get(target) or direct_call(node) or target._op
    return target


def _in_one_format(x: torch.Tensor) -> torch.Tensor:
    return x if x.is_contiguous() else x.contiguous(memory_format=suggest_memory_format(x))


def _group_norm(x: torch.Tensor, *args: Any) -> Any:
    return torch.ops.aten.native_group_norm(_in_one_format(x), *args)


def _group_norm_backward(grad: torch.Tensor, x: torch.Tensor, *args: Any) -> Any:
    x = _in_one_format(x)
    return torch.ops.aten.native_group_norm_backward(
        grad.contiguous(memory_format=suggest_memory_format(x)), x, *args
    )


# Kernels that need a contiguous input in one memory format. F.group_norm makes it so. During a capture it
# sees symbolic tensors, whose strides along dimensions of size 1, and so whose format, may differ from those
# of the run.
IN_ONE_FORMAT = {
    torch.ops.aten.native_group_norm.default: _group_norm,
    torch.ops.aten.native_group_norm_backward.default: _group_norm_backward,
}


def _text(value: FxArgument, names: _Names) -> str:
    if isinstance(value, torch.fx.Node):
        return value.name
    if value is None or type(value) in (int, bool, str):
        return repr(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_text(v, names) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, torch.dtype) or isinstance(value, (torch.layout, torch.memory_format)):
        return names.literal(value) if hasattr(names, "literal") else names.bind("c", value)
    if isinstance(value, torch.device) and hasattr(names, "literal"):
        return f"device({str(value)!r})"
    return names.bind("c", value)


def _arguments(node: torch.fx.Node, names: _Names, by_position: tuple[Any, ...]) -> str:
    """Return the code of a call's arguments."""
    by_name = (
        f"{k}={_text(v, names)}" if _is_name(k) else f"**{{{k!r}: {_text(v, names)}}}"
        for k, v in node.kwargs.items()
    )
    return ", ".join((*(_text(a, names) for a in by_position), *by_name))


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def _comment(line: str) -> str:
    """Return the contents of a # comment, kept on one line whatever characters it contains."""
    return line if line.isprintable() else ascii(line)


def _last_uses(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """Map each node to the nodes that die after it."""
    dies = {}
    seen = set()
    for node in reversed(graph.nodes):
        mine = []
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                mine.append(used)
        if mine:
            dies[node] = mine
    return dies


def compile_program(
    program: PrintableProgram,
    function_name: str = "program",
    labels: Labels | None = None,
    gate: Callable[[], None] | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Return a Python function that takes the slots in order and returns a tuple.

    The function drops dead variables at once. With `labels(program, node)`, it takes a callable as an
    additional leading argument, and calls it with the new labels before each node where the labels change.
    It calls `gate` before the first operator that has an effect outside of the function.
    """
    names = _Names(program.graph)
    params = ["__enter"] if labels else []
    params += [node.name for node in program.graph.nodes if node.op == "placeholder"]
    callbacks = _Callbacks(program, names, labels, gate)
    body = "".join(f"    {line}\n" for line in _body(program, names, callbacks))
    code = f"def {function_name}({', '.join(params)}):\n{body}"
    scope = dict(names.globals)
    exec(compile(code, f"<{program.name}>", "exec"), scope)
    function: Callable[..., tuple[Any, ...]] = scope[function_name]
    setattr(function, "__code_text__", code)  # noqa: B010 -- mypy knows no such attribute of functions
    return function


class _Callbacks:
    """The functions of the caller that a program calls between operators: the gate, and new labels."""

    def __init__(
        self,
        program: PrintableProgram,
        names: _Names,
        labels: Labels | None,
        gate: Callable[[], None] | None,
    ) -> None:
        self.program, self.labels = program, labels
        self.gated = first_lasting(program.graph) if gate is not None else None
        self.gate = names.bind("g", gate) if gate is not None else None
        self.label: Any = None  # of the latest operator

    def before(self, node: torch.fx.Node) -> Iterator[str]:
        """Yield the calls before a node."""
        if self.gate is not None and node is self.gated:
            yield f"{self.gate}()"
        if self.labels is None or node.op != "call_function" or node.target is operator.getitem:
            return
        label = self.labels(self.program, node)
        if label != self.label:
            self.label = label
            yield f"__enter({label!r})"


def _body(program: PrintableProgram, names: _Names, callbacks: _Callbacks) -> Iterator[str]:
    """Yield the statements of the function."""
    log = next((node for node in program.graph.nodes if node.meta.get("undo_log")), None)
    statements = _statements(program, names, callbacks)
    if log is None:
        for _, lines in statements:
            yield from lines
    else:
        yield from _transaction(list(statements), log, names)


def _statements(
    program: PrintableProgram, names: _Names, callbacks: _Callbacks
) -> Iterator[tuple[torch.fx.Node, list[str]]]:
    """Yield (node, its statements)."""
    dies, keeps = _last_uses(program.graph), False
    for node in program.graph.nodes:
        if node.op == "placeholder":
            continue
        lines = [*callbacks.before(node)]
        if node.op == "output":
            yield node, [*lines, _return(node, names)]
            continue
        keeps = keeps or type(node.meta.get("commit")) is int  # the rest may need all variables
        statement = _statement(node, names, program.constants)
        lines.append(statement)
        dead = [n.name for n in dies.get(node, ()) if not n.meta.get("undo_log")]
        if not node.users and not statement.startswith("#") and _assigns(statement):
            dead.append(node.name)
        if dead and not keeps:
            lines.append("del " + ", ".join(dead))
        yield node, lines


def _transaction(
    statements: list[tuple[torch.fx.Node, list[str]]], log: torch.fx.Node, names: _Names
) -> Iterator[str]:
    """Yield the statements of a program with a log of its writes (see compile/undo_log.py).

    Writes of a commit are numbered by node.meta["commit"]. Each of them extends `done`, and is left out if
    the rest runs again after a signal. A commit with many writes is marked "held": no signal interrupts it.
    """
    done = names.bind("done", None)
    del names.globals[done]  # the value is a local variable now
    yield f"{log.name} = {names.bind('f', log.target)}()"
    yield f"{done} = {log.name}.done"
    yield "try:"
    segments: list[list[str]] = [[]]
    is_held = False
    for node, lines in statements:
        if node is log:
            continue
        commit = node.meta.get("commit")
        if commit == "held":
            is_held = True
            segments[-1].append(f"{log.name}.hold()")
        segments[-1] += lines[:-1] if type(commit) is int else lines
        if type(commit) is int:
            segments[-1].append(f"{done}.extend({_mapped(node, names)})")
            segments.append([f"{node.name} = {done}[{commit}]"] if node.users else [])
    for segment in segments:
        yield from _indented(segment)
    yield "except BaseException:"
    yield f"    if not {done}: {log.name}.roll_back()"
    if len(segments) > 2:
        yield f"    elif len({done}) < {len(segments) - 1}:"
        yield f"        with {log.name}.finishing():"
        for position, segment in enumerate(segments[1:-1], 2):
            yield f"            if len({done}) < {position}:"
            yield from _indented(segment, 4)
    yield "    raise"
    if is_held:
        yield "finally:"
        yield f"    {log.name}.release()"


def _indented(lines: Iterable[str], levels: int = 1) -> Iterator[str]:
    return (f"{'    ' * levels}{line}" for line in lines)


def _mapped(node: torch.fx.Node, names: _Names) -> str:
    """Return the code of an iterator that runs one operator, which no signal can interrupt."""
    function = names.bind("f", _fast(node))
    if any(isinstance(value, torch.fx.Node) for value in node.kwargs.values()):
        options = ", ".join(f"{k}={_text(v, names)}" for k, v in node.kwargs.items())
        function = f"{names.bind('f', functools.partial)}({function}, {options})"
    elif node.kwargs:
        function = names.bind("f", functools.partial(names.globals[function], **node.kwargs))
    return f"map({function}, {', '.join(f'({_text(a, names)},)' for a in node.args)})"


def _return(node: torch.fx.Node, names: _Names) -> str:
    values: Any = node.args[0]
    results = [_text(v, names) for v in values]
    return f"return ({', '.join(results)}{',' if len(results) == 1 else ''})"


def _assigns(line: str) -> bool:
    return " = " in line.split("(", 1)[0]


def _statement(node: torch.fx.Node, names: _Names, constants: dict[str, torch.Tensor]) -> str:
    if node.op == "get_attr":
        return f"{node.name} = {names.bind('k', constants[str(node.target)])}"
    template = ARITHMETIC.get(node.target)
    if template is not None:
        return f"{node.name} = " + template.format(*(_paren(_text(a, names)) for a in node.args))
    if node.target is operator.getitem:
        return f"{node.name} = {_item(node, names)}"
    function = _fast(node)
    by_position = with_spread_list(node) if function is direct_call(node) else node.args
    call = f"{names.bind('f', function)}({_arguments(node, names, by_position)})"
    return call if not node.users else f"{node.name} = {call}"


def _item(node: torch.fx.Node, names: _Names) -> str:
    """Return the expression of one result of several."""
    sequence, index = node.args
    return f"{_text(sequence, names)}[{_text(index, names)}]"


def _paren(expression: str) -> str:
    return f"({expression})" if expression.startswith("-") else expression


class _ReadableNames(_Names):
    def literal(self, value: object) -> str:
        return str(value)


def _target_text(target: Target, names: _Names) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"ops.{target.namespace}.{target._schema.name.split('::')[1]}.{target._overloadname}"
    if isinstance(target, types.BuiltinFunctionType) and target.__module__ == "math":
        return f"math.{target.__name__}"
    return names.bind("f", target)


def _section(node: torch.fx.Node, of_micro_batch: bool) -> str | None:
    """Return the phase and the module of a node, for a comment above its statement."""
    phase, module = node.meta.get("phase"), node.meta.get("module")
    if phase is None and module is None:
        return None
    if of_micro_batch and "micro_batch" in node.meta:
        phase = f"{phase} of micro batch {node.meta['micro_batch']}"
    return f"{phase}: {module}" if module else str(phase)


def readable(program: ProgramWithSlots) -> str:
    """Return the program as runnable Python code: `def program(...)` over torch.ops.

    Module names and slots are comments.
    """
    names = _ReadableNames(program.graph)
    lines = [
        "import math",
        "import torch",
        "from torch import device, ops",
        "inf, nan = math.inf, math.nan",
        "",
    ]
    head = [f"def {_identifier(program.name)}("]
    slots = iter(program.slots)
    body = []
    current = None
    dies = _last_uses(program.graph)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            head.append(f"    {node.name},  # {_comment(str(next(slots)))}")
            continue
        if node.op == "output":
            body.append("    " + _return(node, names))
            continue
        section = _section(node, program.pipeline is not None)
        if section not in (current, None):
            body.append(f"    # {_comment(section)}")
            current = section
        body.append("    " + _readable_statement(node, names))
        dead = [n.name for n in dies.get(node, ()) if n.op != "placeholder"]
        if dead:
            body[-1] += "; del " + ", ".join(dead)
    head.append("):")
    for name, value in names.globals.items():
        lines.append(f"{name} = ...  # {_comment(repr(value))}")
    for name, value in program.constants.items():
        literal = (
            f"torch.tensor({value.tolist()!r}, dtype={value.dtype}, device={str(value.device)!r})"
            if value.numel() <= 64
            else None
        )
        lines.append(f"{name} = {literal or f'...  # {value.dtype} {list(value.shape)}'}")
    return "\n".join(lines + head + body) + "\n"


def _identifier(name: str) -> str:
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in name) or "program"
    return name if _is_name(name) else f"_{name}"


def _readable_statement(node: torch.fx.Node, names: _Names) -> str:
    if node.op == "get_attr":
        return f"{node.name} = {node.target}"
    template = ARITHMETIC.get(node.target)
    if template is not None:
        expression = template.format(*(_paren(_text(a, names)) for a in node.args))
    elif node.target is operator.getitem:
        expression = _item(node, names)
    else:
        expression = f"{_target_text(node.target, names)}({_arguments(node, names, node.args)})"
    return f"{node.name} = {expression}" if node.users else expression
