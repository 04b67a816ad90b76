"""Python numbers that build() reads, and that change from call to call: they become inputs of the program.

    self.step += 1                      # a counter that build() also reads
    weight = self.step / self.warmup
    tau = self.temperature              # another number in each epoch

While build() runs, a symbol lies in the place of each such number, so whoever reads it gets the symbol. What
lies there at the end is what each run stores.
"""

from __future__ import annotations

import contextlib
import math
import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from torch.fx import Node

from ...errors import NumbersNeeded
from ...guards.conditions import Condition, conditions_on
from ...guards.guard import Guard
from ...program.captured import StoredAttribute
from ...program.live_numbers import (
    LiveNumber,
    LiveNumbers,
    copy_of_number,
)
from ...program.locations import NumberSource, PythonNumber
from ...program.python_values import MISSING, is_constant
from ...program.pytree import flatten_containers, with_sizes
from ...program.symbolic import SYMBOLIC_NUMBERS
from ..patches.patching import undone
from .numbers_and_symbols import NumbersOfRun

if TYPE_CHECKING:
    from ..recorder import Recorder

_NUMBERS = (int, float)
_SAME_TYPE: dict[type, Any] = {
    int: lambda value, _: type(value) is int,
    float: lambda value, _: type(value) is float,
}
_DIVISIONS = {operator.truediv, operator.floordiv, operator.mod}
_OTHERS = {operator.pow, round, *filter(callable, vars(math).values())}
_LEAF = with_sizes(flatten_containers(0)[1])


class PythonNumbers(LiveNumbers):
    """The numbers of one capture that come from Python. A use of the value itself names their sources."""

    def __init__(self, recorder: Recorder, sources: dict[Node, NumberSource]) -> None:
        super().__init__(recorder.sizes.record)
        self.recorder = recorder
        self.made: list[weakref.ref[LiveNumber]] = recorder.numbers
        self.sources = sources
        self.types: list[Condition] = []  # tests of results whose type may change from call to call
        self.needed: set[Node] = set()  # the error may be suppressed on its way

    def computed(self, value: int | float, node: Node) -> LiveNumber:
        """Return a number that `node` computes. An object outside that keeps it would not get a value."""
        number = super().computed(value, node)
        self.made.append(weakref.ref(number))
        if _may_fail(node):  # build() then raises the error, or gives a number of another type
            self.types.append(Condition(node, _SAME_TYPE[type(value)], None))
        return number

    def converted(self, operand: Any) -> Any:
        """Return an integer of a tensor, or its float, which is a symbol of torch's, as a number."""
        return NumbersOfRun(self.recorder.sizes, self.made).converted(operand)

    def need(self, *numbers: LiveNumber) -> NoReturn:
        """Raise, because build() needs the values of numbers themselves."""
        pending: list[Any] = [number.node for number in numbers if type(number) is LiveNumber]
        while pending:
            node = pending.pop()
            if isinstance(node, Node):
                pending += node.all_input_nodes
                if node in self.sources:
                    self.needed.add(node)
        assert self.needed, "a number of Python has no source"
        raise self.error()

    def error(self) -> NumbersNeeded:
        """Return the error that names the sources whose values build() needs."""
        return NumbersNeeded([self.sources[node].identity for node in self.needed])


class NumberInputs:
    """The Python numbers that are inputs of one capture."""

    def __init__(self, sources: Sequence[NumberSource], recorder: Recorder) -> None:
        self.recorder = recorder
        self.nodes: dict[Node, NumberSource] = {}  # placeholder -> what it stands for
        self.numbers = PythonNumbers(recorder, self.nodes)
        self._before: list[tuple[NumberSource, int | float]] = []
        self._symbols: list[Any] = []
        self.stored: list[StoredAttribute] = []  # attributes that each run stores, once build() has returned
        for source in sources:
            value = _value_at(source)
            if type(value) in _NUMBERS:
                self._before.append((source, value))

    @property
    def places(self) -> dict[tuple[int, Any], int | float]:
        """The numbers, by (id(owner), key or None for a variable). The observer need not follow them."""
        return {source.identity: value for source, value in self._before}

    def need_those_read_by(self, guards: Iterable[Guard]) -> None:
        """Ask for the numbers that step() of the optimizers reads after build() has returned."""
        read = {(id(guard.owner), guard.source.key) for guard in guards}
        if needed := [identity for identity in self.places if identity in read]:
            raise NumbersNeeded(needed)

    def need_those_in(self, containers: set[int]) -> None:
        """Ask for the numbers in containers that build() returns, given by their ids."""
        if needed := [identity for identity in self.places if identity[0] in containers]:
            raise NumbersNeeded(needed)

    @property
    def conditions(self) -> list[Condition]:
        """The outcomes of comparisons that build() branched on, and the types of results."""
        return self.numbers.types + conditions_on(self.numbers)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Let build() find symbols in the places of the numbers."""
        with undone(self.restore):
            for source, value in self._before:
                node = self.recorder.placeholder("number", value)
                self.nodes[node] = source
                symbol = self.numbers.symbol(self.numbers.computed(value, node))
                self._symbols.append(symbol)
                source.write(symbol)
            yield
            self.stored = self._left_by_build()
        self._symbols.clear()
        if self.numbers.needed:
            raise self.numbers.error()

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Let a snapshot find the numbers."""
        now = [(source, _value_at(source), number) for source, number in self._before]
        now = [change for change in now if change[1] is not MISSING]
        for source, _, number in now:
            source.write(number)
        try:
            yield
        finally:
            for source, value, _ in now:
                source.write(value)

    def restore(self) -> None:
        """Put the numbers back where they lay."""
        for source, value in self._before:
            source.write(value)

    def _left_by_build(self) -> list[StoredAttribute]:
        """Return what lies in the places where build() left something else."""
        stored = []
        for (source, _), symbol in zip(self._before, self._symbols):
            value = _value_at(source)
            if value is symbol:
                continue
            if not (type(value) in SYMBOLIC_NUMBERS or is_constant(value)):
                self.numbers.needed.update(node for node in self.nodes if self.nodes[node] is source)
            stored.append(StoredAttribute(source.container, source.key, (copy_of_number(value),), _LEAF))
        return stored

    def drop_unused(self, outputs: Sequence[Any]) -> None:
        """Remove the inputs that nothing computes with."""
        for node in [node for node in self.nodes if not node.users and node not in outputs]:
            del self.nodes[node]
            self.recorder.graph.erase_node(node)

    def locations(self) -> dict[Node, PythonNumber]:
        """Return the location of each placeholder: its index among `nodes`."""
        return {node: PythonNumber(index) for index, node in enumerate(self.nodes)}


def _may_fail(node: Node) -> bool:
    """Whether the arithmetic of a node raises for some numbers, or gives a complex one."""
    if node.target in _DIVISIONS:
        return isinstance(node.args[1], Node) or not node.args[1]
    return node.op == "call_function" and node.target in _OTHERS


def _value_at(source: NumberSource) -> Any:
    try:
        return source.read()
    except KeyError:
        return MISSING
