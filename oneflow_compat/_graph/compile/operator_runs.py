"""Runs of operators that one call into C++ executes, instead of one call from Python for each operator.

    t = w.t(); y = addmm(b, x, t); z = relu(y)        ->        (z,) = run_of_operators([w, b, x])

The same operators run in the same order with the same arguments, through torch's dispatcher, so the bits are
those of eager mode. Views and the results of an operator with several results cost no Python. A call of a
small operator from Python takes about 0.4 microseconds more than one from C++ (csrc/runs.cpp).
"""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Graph, Node

from ..._kernels import _runs
from ..program.codegen import ARITHMETIC, IN_ONE_FORMAT, compile_program
from ..program.node_editing import copied
from ..program.program import Program, written_args
from ..program.random_functions import samples
from ..program.tensor_info import TensorInfo
from .live_memory import LiveMemory

if TYPE_CHECKING:
    from torch.fx.node import Argument as FxArgument

_VALUE, _INTEGERS, _REGISTER, _TENSORS, _OPTIONAL_TENSORS, _NUMBERS = range(6)  # Source of csrc/runs.cpp
_FEWEST = 6  # operators of a run, whose call takes about 1.5 microseconds more than that of an operator
_MOST = 64
_LARGE = 1 << 18  # elements of a tensor: the call of a larger operator costs little beside its time
_OPTIONS = {torch.dtype: 0, torch.layout: 1, torch.memory_format: 2, torch.device: 3}


class _Part(NamedTuple):
    """A graph as a program of its own."""

    name: str
    graph: Graph
    constants: dict[str, torch.Tensor]


class _NotInRuns(Exception):
    """A call has an argument that a run does not hold."""

    def __init__(self, call: Node) -> None:
        super().__init__(call)
        self.call = call


class Run:
    """Operators that C++ calls one after the other."""

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        members = set(nodes)
        read = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in members)
        numbers = dict.fromkeys(n for node in nodes for n in _numbers_of(node))
        tensors = [n for n in read if n not in numbers]
        self.inputs = [*tensors, *numbers]
        self.outputs = [
            n for n in nodes if not _has_several(n) and any(user not in members for user in n.users)
        ]
        self.__name__ = "run_of_operators"
        self._name, self.nodes = name, nodes
        self._python: Callable[..., Any] | None = None
        self._call = torch.ops.oneflow.run_of_operators.default._op
        self._tensors = len(tensors)
        self._handle = _Encoding(nodes, tensors, list(numbers), self.outputs).handle
        removal = weakref.finalize(self, torch.ops.oneflow.remove_run.default, self._handle)
        removal.atexit = False

    def __call__(self, *inputs: torch.Tensor | float) -> Any:
        if not torch._C._len_torch_dispatch_stack():
            try:
                return self._call(inputs[: self._tensors], inputs[self._tensors :], self._handle)
            except Exception:  # raised again by the operator that fails, at its own line
                pass
        return self._in_python(*inputs)

    def _in_python(self, *inputs: torch.Tensor | float) -> Any:
        """Call the operators from Python: for a dispatch mode, which sees them, and for an error."""
        if self._python is None:
            graph, copies = Graph(), dict[Node, Node]()
            for node in self.inputs:
                copies[node] = graph.placeholder(node.name)
            for node in self.nodes:
                copies[node] = copied(graph, node, copies)
            graph.output(tuple(copies[node] for node in self.outputs))
            self._python = compile_program(_Part(self._name, graph, {}))
        return self._python(*inputs)


class _Encoding:
    """The calls of a run, as csrc/runs.cpp stores them. A tensor is a register."""

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Node],
        numbers: Sequence[Node],
        outputs: Sequence[Node],
    ) -> None:
        calls = [node for node in nodes if node.target is not operator.getitem]
        tensors = (*inputs, *(node for node in nodes if not _has_several(node)))
        self._registers = {node: index for index, node in enumerate(tensors)}
        self._numbers = {node: index for index, node in enumerate(numbers)}
        self.handle: int = torch.ops.oneflow.new_run(len(inputs), len(numbers), len(tensors))
        last_use = {n: call for call in calls for n in call.all_input_nodes}
        read = last_use.keys() | set(outputs)
        try:
            for call in calls:
                dead = [n for n in call.all_input_nodes if last_use[n] is call and n in self._registers]
                dead = [n for n in dead if n not in outputs]
                self._add(call, dead, read)
            torch.ops.oneflow.set_outputs(self.handle, self._indices(outputs))
        except BaseException:
            torch.ops.oneflow.remove_run(self.handle)
            raise

    def _indices(self, nodes: Iterable[Node | None]) -> list[int]:
        return [-1 if node is None else self._registers[node] for node in nodes]

    def _add(self, call: Node, dead: list[Node], read: Collection[Node]) -> None:
        schema = call.target._schema
        results = (node if node in read else None for node in _results_of(call))
        torch.ops.oneflow.add_call(
            self.handle, schema.name, schema.overload_name, self._indices(results), self._indices(dead)
        )
        add_argument = torch.ops.oneflow.add_argument.default._op
        for value, argument in _arguments_of(call, schema):
            try:
                add_argument(self.handle, *self._encoded(value, argument))
            except RuntimeError:
                raise _NotInRuns(call) from None

    def _encoded(self, value: FxArgument, argument: torch.Argument) -> tuple[Any, ...]:
        """Return the arguments of add_argument after the handle."""
        if isinstance(value, Node):
            return _REGISTER, self._indices([value]), None
        if isinstance(value, (list, tuple)):
            return self._encoded_list(value, str(argument.type))
        option = _OPTIONS.get(type(value))
        if option is None:
            return _VALUE, [], value
        options: list[Any] = [None] * len(_OPTIONS)
        options[option] = value
        return _VALUE, [], None, *options

    def _encoded_list(self, values: Sequence[Any], type_name: str) -> tuple[Any, ...]:
        if any(v in self._numbers for v in values if isinstance(v, Node)):
            constants = [0.0 if isinstance(v, Node) else float(v) for v in values]
            return _NUMBERS, [self._numbers[v] if isinstance(v, Node) else -1 for v in values], constants
        if any(isinstance(v, Node) for v in values):
            source = _OPTIONAL_TENSORS if "Optional" in type_name else _TENSORS
            return source, self._indices(values), None
        if all(type(v) in (int, bool) for v in values):
            return _INTEGERS, [int(v) for v in values], None
        return _VALUE, [], [float(v) for v in values]


def _arguments_of(call: Node, schema: torch.FunctionSchema) -> Iterator[tuple[FxArgument, torch.Argument]]:
    """Yield (value, its argument) up to the last value that the call has. The others are defaults."""
    left = len(call.kwargs)
    for position, argument in enumerate(schema.arguments):
        if position < len(call.args):
            yield call.args[position], argument
        elif left:
            left -= argument.name in call.kwargs
            yield call.kwargs.get(argument.name, argument.default_value), argument
        else:
            return


def _numbers_of(node: Node) -> list[Node]:
    """Return the numbers of a call that another node computes: elements of a list of floats."""
    arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
    lists: Any = (value for value, a in zip(node.args, arguments) if str(a.type) == "List[float]")
    return [v for values in lists for v in values if isinstance(v, Node)]


def _has_several(node: Node) -> bool:
    """Whether the result of a node is several tensors."""
    return _returns_several(node.target)


@functools.cache
def _returns_several(target: object) -> bool:
    returns = getattr(getattr(target, "_schema", None), "returns", ())
    return len(returns) > 1 or any(isinstance(r.type, torch.ListType) for r in returns)


def _results_of(call: Node) -> list[Node | None]:
    if not _has_several(call):
        return [call] if call.target._schema.returns else []
    count = len(call.target._schema.returns)
    items: dict[Any, Node] = {user.args[1]: user for user in call.users}
    if count == 1:  # a list
        count = max(items, default=-1) + 1
    return [items.get(index) for index in range(count)]


def in_runs(program: Program) -> Program:
    """Return the program with runs of operators, or the program itself if it has none."""
    if torch._C._len_torch_function_stack() or not _runs.is_loaded():  # such a mode sees each operator
        return program
    run_of: dict[Node, Run] = {}  # first node -> its run
    inside: set[Node] = set()
    for nodes in _long_enough(_candidates(program.graph)):
        for run in _encoded(program.name, nodes):
            run_of[run.nodes[0]] = run
            inside.update(run.nodes)
    if not run_of:
        return program
    graph, copies = Graph(), dict[Node, Node]()
    for node in program.placeholders:  # some stand behind the first operator of a run that reads them
        copies[node] = copied(graph, node, copies)
    for node in program.graph.nodes:
        if node in run_of:
            _add(run_of[node], graph, copies)
        elif node not in inside and node not in copies:
            copies[node] = copied(graph, node, copies)
    return program.with_(graph=graph)


def _add(run: Run, graph: Graph, copies: dict[Node, Node]) -> None:
    for node in run.inputs:
        _copy(node, graph, copies)
    call = graph.call_function(run, tuple(copies[node] for node in run.inputs))
    for index, node in enumerate(run.outputs):
        copies[node] = graph.call_function(operator.getitem, (call, index))
        copies[node].meta = dict(node.meta)


def _copy(node: Node, graph: Graph, copies: dict[Node, Node]) -> None:
    """Copy a constant, or a number and what it is computed from, which stand behind the first operator."""
    if node not in copies:
        for operand in node.all_input_nodes:
            _copy(operand, graph, copies)
        copies[node] = copied(graph, node, copies)


def _encoded(name: str, nodes: Sequence[Node]) -> Iterator[Run]:
    """Yield runs of these nodes. A call with an argument that no run can hold stays in Python."""
    try:
        yield Run(name, nodes)
        return
    except _NotInRuns as error:
        refused = nodes.index(error.call)
    items = {user for user in nodes[refused].users if user.target is operator.getitem}
    for part in (nodes[:refused], [node for node in nodes[refused + 1 :] if node not in items]):
        for rest in _long_enough([part]):
            yield from _encoded(name, rest)


def _candidates(graph: Graph) -> Iterator[list[Node]]:
    """Yield consecutive nodes that may be one run. The results of a call with several follow it."""
    live = LiveMemory(graph)
    nodes, items, numbers = list[Node](), set[Node](), set[Node]()
    for node in graph.nodes:
        if _is_number(node, numbers):
            numbers.add(node)
        if node.op in ("placeholder", "get_attr") or node in items or node in numbers:
            continue
        if _can_be_in_run(node):
            nodes.append(node)
            if _has_several(node):
                nodes += node.users
                items.update(node.users)
            continue
        if _is_update(node, numbers):
            nodes.append(node)  # the last one, because Python repeats a run that fails
        yield from _fitting(live, nodes)
        nodes = []
    yield from _fitting(live, nodes)


def _is_number(node: Node, numbers: Collection[Node]) -> bool:
    """Whether a node is a number, which the program takes or computes from such numbers and nothing else."""
    if node.op == "placeholder":
        return node.meta.get("tensor") is None
    is_arithmetic = node.op == "call_function" and node.target in ARITHMETIC and "commit" not in node.meta
    return is_arithmetic and all(operand in numbers for operand in node.all_input_nodes)


def _is_update(node: Node, numbers: Collection[Node]) -> bool:
    """Whether a node is the update of an optimizer, which fails before it writes, if it fails."""
    # by its name, because the library of the operator may not be loaded
    if str(node.target) != "oneflow.blocks_.default" or "commit" in node.meta:
        return False
    own = set(_numbers_of(node))
    return own <= set(numbers) and all(_is_small(n) for n in node.all_input_nodes if n not in own)


def _fitting(live: LiveMemory, nodes: list[Node]) -> Iterator[list[Node]]:
    """Cut nodes into parts that need no more memory as a run, and soon return to Python, where signals are
    handled.
    """
    while nodes:
        end = max(min(live.fitting_part(nodes), _MOST), 1)
        while end < len(nodes) and nodes[end].target is operator.getitem:  # beside its call
            end += 1
        yield nodes[:end]
        nodes = nodes[end:]


def _long_enough(parts: Iterable[Sequence[Node]]) -> Iterator[Sequence[Node]]:
    return (p for p in parts if sum(n.target is not operator.getitem for n in p) >= _FEWEST)


def _can_be_in_run(node: Node) -> bool:
    """Whether a node calls an operator that only computes a small result on the CPU from its arguments."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "oneflow"):
        return False
    if written_args(node) or samples(target) or target in IN_ONE_FORMAT or "commit" in node.meta:
        return False
    results = [node]
    if _has_several(node):
        results = list(node.users)
        indices = [u.args[1] if u.target is operator.getitem else None for u in results]
        if len(set(indices)) < len(indices) or not all(type(i) is int and i >= 0 for i in indices):
            return False
    return all(_is_small(n) for n in (*results, *node.all_input_nodes))


def _is_small(node: Node) -> bool:
    info: TensorInfo | None = node.meta.get("tensor")
    if node.op == "get_attr":
        return True
    if info is None or info.stride is None or info.device.type != "cpu":
        return False
    sizes = [n for n in info.shape if type(n) is int]
    return len(sizes) == len(info.shape) and math.prod(sizes) <= _LARGE
