"""Python floats that a program has as numbers: an option of an optimizer that build() reads, and what
.item() of a tensor gives.

While build() is captured, such a float is a torch.SymFloat, and a `LiveNumber` is its node. Python's
arithmetic on it records the same arithmetic into the program. Code that needs the float itself gets an error:
float(), a C function, a text.

The value of an option is known: a branch on it adds a condition, and after an error the engine captures
build() again with the float as a constant. The value of a tensor is not: a branch on it is an error, too.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.fx import Node

from ..errors import NEEDS_VALUE, CapturedAgain, CaptureError
from .guards.scalar_guards import Condition


class NumberNeeded(CapturedAgain):
    """build() needs the value of a number that was to be an input of the program."""


class LiveNumbers:
    """The numbers of one capture, and the conditions on them. `record(function, nodes)` adds a node."""

    def __init__(self, record: Callable[[Callable[..., Any], tuple[Any, ...]], Node]):
        self.record = record
        self.conditions: list[Condition] = []
        self.is_needed = False  # the error below may be suppressed on its way

    def number(self, value: float, node: Node) -> torch.SymFloat:
        """Return the number that build() gets for a float."""
        return torch.SymFloat(LiveNumber(self, value, node))

    def need(self) -> NoReturn:
        """Raise, because build() needs a value itself."""
        self.is_needed = True
        raise NumberNeeded("build() needs the value of an option of an optimizer")


class NumbersOfTensors(LiveNumbers):
    """The numbers that .item() gives, which only a run knows. Weak references to them go to `made`."""

    def __init__(
        self, record: Callable[[Callable[..., Any], tuple[Any, ...]], Node], made: list[Any], advice: str
    ) -> None:
        super().__init__(record)
        self.made, self.advice = made, advice

    def unknown(self, node: Node, number_type: type = float) -> LiveNumber:
        """Return a number that `node` computes."""
        number = LiveNumber(self, None, node, number_type)
        self.made.append(weakref.ref(number))
        return number

    def need(self) -> NoReturn:
        """Raise, because build() needs a value itself."""
        raise CaptureError(NEEDS_VALUE, self.advice)


class LiveNumber:
    """What torch calls the node of a SymFloat or SymBool: here a value, and the fx node that computes it.

    The fx node of a constant is the constant. The value None is not known, and `number_type` is its type.
    """

    def __init__(
        self, numbers: LiveNumbers, value: float | None, node: Node | float, number_type: type = float
    ) -> None:
        self.numbers, self.value, self.node = numbers, value, node
        self.number_type = number_type if value is None else type(value)

    @property
    def sample(self) -> float:
        """The value, or some number: what an operator computes shapes with."""
        return 0.5 if self.value is None else self.value

    def __deepcopy__(self, memo: dict[int, object]) -> LiveNumber:
        return self

    def is_int(self) -> bool:
        return self.number_type is int

    def is_float(self) -> bool:
        return self.number_type is float

    def is_bool(self) -> bool:
        return self.number_type is bool

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def wrap_float(self, value: float) -> LiveNumber:
        return LiveNumber(self.numbers, value, value)

    wrap_int = wrap_bool = wrap_float

    def sym_float(self) -> LiveNumber:
        return self

    def pos(self) -> LiveNumber:
        return self

    def guard_bool(self, file: str, line: int) -> bool:
        """Return the outcome of a comparison, which the program tests from here on."""
        if self.value is None:
            self.numbers.need()
        if type(self.value) is not bool:
            return self.ne(self.wrap_float(0.0)).guard_bool(file, line)
        if isinstance(self.node, Node):
            condition = Condition(self.node, operator.eq, self.value)
            if condition not in self.numbers.conditions:
                self.numbers.conditions.append(condition)
        return self.value

    def bool_(self) -> bool:
        return self.guard_bool("", 0)

    expect_true = expect_size = guard_or_false = guard_or_true = guard_size_oblivious = guard_bool

    def __getattr__(self, name: str) -> NoReturn:
        """Everything else that torch asks a node for needs the value: guard_float, expr, str, ..."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.numbers.need()


def _arithmetic(function: Callable[..., float]) -> Callable[..., LiveNumber]:
    def computed(self: LiveNumber, *operands: LiveNumber) -> LiveNumber:
        if not all(type(operand) is LiveNumber for operand in operands):  # a size that is a symbol
            self.numbers.need()
        every = (self, *operands)
        nodes = tuple(operand.node for operand in every)
        unknown: Any = next((operand.numbers for operand in every if operand.value is None), None)
        if unknown is not None:
            number_type = bool if function in _COMPARISONS else float
            result: LiveNumber = unknown.unknown(unknown.record(function, nodes), number_type)
            return result
        value = function(*(operand.value for operand in every))
        if type(value) not in (float, bool):  # a negative base of a power gives a complex number
            self.numbers.need()
        return LiveNumber(self.numbers, value, self.numbers.record(function, nodes))

    return computed


_COMPARISONS = {getattr(operator, name) for name in "eq ne lt le gt ge".split()}
_FUNCTIONS = {name: getattr(operator, name) for name in "add sub mul mod neg abs eq ne lt le gt ge".split()}
_FUNCTIONS.update(float_truediv=operator.truediv, float_pow=operator.pow)
for _name, _function in _FUNCTIONS.items():
    setattr(LiveNumber, _name, _arithmetic(_function))


def copy_of_number(value: Any) -> Any:
    """Return another object for a number, which nobody else holds. Return another value as it is."""
    live = live_number(value)
    return (
        value
        if live is None
        else type(value)(LiveNumber(live.numbers, live.value, live.node, live.number_type))
    )


def live_number(value: object) -> LiveNumber | None:
    """Return the node of a number that is an input of the program, or None for any other value."""
    if type(value) is torch.SymFloat or type(value) is torch.SymBool:
        return value.node if type(value.node) is LiveNumber else None
    return None
