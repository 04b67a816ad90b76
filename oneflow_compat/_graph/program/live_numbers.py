"""Numbers that a program computes with: options of optimizers and Python numbers that build() reads, and
what .item() of a tensor gives.

While build() is captured, such a number is a torch.SymFloat or torch.SymInt, and a `LiveNumber` is its node.
Python's arithmetic on it records the same arithmetic into the program. Code that needs the number itself
gets an error: float(), an index, a size, a C function, a text.

The value of an option or a Python number is known: a branch on it adds a condition, and after an error the
engine captures build() again with the number as a constant. The value of a tensor is not: a branch on it is
an error, too.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch.fx import Node

from ..errors import NEEDS_VALUE, CapturedAgain, CaptureError
from .symbolic import SYMBOLIC_NUMBERS


class NumberNeeded(CapturedAgain):
    """build() needs the value of a number that was to be an input of the program."""


class LiveNumbers:
    """The numbers of one capture, and what build() asked of them. `record(function, nodes)` adds a node."""

    def __init__(self, record: Callable[[Callable[..., Any], tuple[Any, ...]], Node]):
        self.record = record
        # comparison that decided a branch of build() -> its outcome, which the program tests
        self.outcomes: dict[Node, float] = {}
        self.is_needed = False  # the error below may be suppressed on its way

    def number(self, value: int | float, node: Node) -> torch.SymFloat | torch.SymInt:
        """Return the number that build() gets for a float or an int."""
        return self.symbol(LiveNumber(self, value, node))

    @staticmethod
    def symbol(number: LiveNumber) -> torch.SymFloat | torch.SymInt:
        """Return what build() gets for a number."""
        symbol: type = torch.SymInt if number.is_int() else torch.SymFloat
        result: torch.SymFloat | torch.SymInt = symbol(number)
        return result

    def computed(self, value: int | float, node: Node) -> LiveNumber:
        """Return a number that `node` computes from others of this capture."""
        return LiveNumber(self, value, node)

    def converted(self, operand: Any) -> Any:
        """Return the operand of a number as a number, if that is possible."""
        return operand

    def outcome(self, number: LiveNumber) -> bool:
        """Return the truth value of a comparison whose operands only a run knows, or raise."""
        self.need(number)

    def need(self, *numbers: LiveNumber) -> NoReturn:
        """Raise, because build() needs the values of numbers themselves."""
        self.is_needed = True
        raise NumberNeeded("build() needs the value of an option of an optimizer")


class NumbersOfTensors(LiveNumbers):
    """The numbers that .item() gives, which only a run knows. Weak references to them go to `made`."""

    def __init__(
        self,
        record: Callable[[Callable[..., Any], tuple[Any, ...]], Node],
        made: list[Any],
        advice: str,
        branch: Callable[[Node], bool | None] = lambda node: None,
    ) -> None:
        super().__init__(record)
        self.made, self.advice, self.branch = made, advice, branch

    def unknown(self, node: Node, number_type: type = float) -> LiveNumber:
        """Return a number that `node` computes."""
        number = LiveNumber(self, None, node, number_type)
        self.made.append(weakref.ref(number))
        return number

    def need(self, *numbers: LiveNumber) -> NoReturn:
        """Raise, because build() needs the values of numbers themselves."""
        raise CaptureError(NEEDS_VALUE, self.advice)

    def outcome(self, number: LiveNumber) -> bool:
        """Return the truth value that this program has for a comparison. It raises in a run with another."""
        outcome = self.branch(number.node) if isinstance(number.node, Node) else None
        return self.need(number) if outcome is None else outcome


class LiveNumber:
    """What torch calls the node of a SymFloat, SymInt or SymBool: a value, and the fx node that computes it.

    The fx node of a constant is the constant. The value None is not known, and `number_type` is its type.
    """

    def __init__(
        self, numbers: LiveNumbers, value: float | None, node: Node | float, number_type: type = float
    ) -> None:
        self.numbers, self.value, self.node = numbers, value, node
        self.number_type = number_type if value is None else type(value)

    @property
    def sample(self) -> float:
        """The value, or some number of its type: what an operator computes shapes and dtypes with."""
        return self.number_type(0.5 if self.number_type is float else 1) if self.value is None else self.value

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

    def is_nested_int(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return self.value is not None

    def maybe_as_int(self) -> None:
        """Tell torch that no program is fixed to the number."""

    def wrap_float(self, value: float) -> LiveNumber:
        return LiveNumber(self.numbers, value, value)

    wrap_int = wrap_bool = wrap_float

    def round(self, digits: int | None = None) -> LiveNumber:
        rounded = _arithmetic(round)
        if self.value is None:
            self.numbers.need(self)
        return rounded(self) if digits is None else rounded(self, self.wrap_float(digits))

    def sym_float(self) -> LiveNumber:
        return _TO_FLOAT(self) if self.is_int() else self

    def pos(self) -> LiveNumber:
        return self

    def guard_bool(self, file: str, line: int) -> bool:
        """Return the outcome of a comparison, which the program tests from here on."""
        if self.number_type is not bool:
            return self.ne(self.wrap_float(0.0)).guard_bool(file, line)
        if self.value is None:
            return self.numbers.outcome(self)
        if isinstance(self.node, Node):
            self.numbers.outcomes[self.node] = self.value
        return bool(self.value)

    def bool_(self) -> bool:
        return self.guard_bool("", 0)

    expect_true = expect_size = guard_or_false = guard_or_true = guard_size_oblivious = guard_bool

    def __getattr__(self, name: str) -> NoReturn:
        """Everything else that torch asks a node for needs the value: guard_float, expr, str, ..."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.numbers.need(self)


def _arithmetic(function: Callable[..., float]) -> Callable[..., LiveNumber]:
    def computed(self: LiveNumber, *operands: Any) -> LiveNumber:
        every = (self, *map(self.numbers.converted, operands))
        if not all(type(operand) is LiveNumber for operand in every):  # a size that is a symbol
            self.numbers.need(*every)
        nodes = tuple(operand.node for operand in every)
        unknown: Any = next((operand.numbers for operand in every if operand.value is None), None)
        if unknown is not None:
            number_type = _type_of_result(function, [operand.number_type for operand in every])
            result: LiveNumber = unknown.unknown(unknown.record(function, nodes), number_type)
            return result
        value = _value_of(function, every)
        if type(value) not in (int, float, bool):
            self.numbers.need(*every)
        return self.numbers.computed(value, self.numbers.record(function, nodes))

    return computed


def _value_of(function: Callable[..., float], operands: Sequence[LiveNumber]) -> Any:
    """Return the result, or None if the function raises, which decides what code in a `try` does."""
    try:
        return function(*(operand.value for operand in operands))
    except (ArithmeticError, ValueError, TypeError):
        return None


def _type_of_result(function: Callable[..., float], types: Sequence[type]) -> type:
    if function in _COMPARISONS or function in _TESTS:
        return bool
    if function in _ROUNDED or function in _OF_INTEGERS and float not in types:
        return int
    return float


_COMPARISONS = {getattr(operator, name) for name in "eq ne lt le gt ge".split()}
_OF_INTEGERS = {getattr(operator, name) for name in "add sub mul mod floordiv neg abs pow".split()}
_TESTS = {math.isfinite, math.isnan, math.isinf}
_ROUNDED = {math.floor, math.ceil, math.trunc, int}
_FUNCTIONS = {name: getattr(operator, name) for name in "add sub mul mod neg abs eq ne lt le gt ge".split()}
_FUNCTIONS.update(
    float_truediv=operator.truediv,
    int_truediv=operator.truediv,
    int_floordiv=operator.floordiv,
    float_pow=operator.pow,
    pow_by_natural=operator.pow,
)
for _name, _function in _FUNCTIONS.items():
    setattr(LiveNumber, _name, _arithmetic(_function))
_TO_FLOAT = _arithmetic(float)


def function_of_numbers(function: Callable[..., Any], values: Sequence[Any]) -> Any:
    """Return the result of a function of Python for numbers of the program, which it records.

    An error of the function is that of the numbers of this call.
    """
    operand = next(live for value in values if (live := live_number(value)) is not None)
    if not all(type(value) in (int, float, bool) or live_number(value) is not None for value in values):
        operand.numbers.need(operand)
    operands = (live_number(value) or operand.wrap_float(value) for value in values)
    result = _arithmetic(function)(*operands)
    return result.bool_() if result.is_bool() else operand.numbers.symbol(result)


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
    if type(value) in SYMBOLIC_NUMBERS:
        node = value.node  # type: ignore[attr-defined]  # of the class that was asked for
        return node if type(node) is LiveNumber else None
    return None


def need_sizes(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Ask the numbers for their values that an operator takes as a size, a dimension or an index.

    The shapes and the memory of its results depend on them.
    """
    parameters = func._schema.arguments
    named = {parameter.name: parameter for parameter in parameters}
    pairs = [*zip(parameters, args), *((named[name], value) for name, value in kwargs.items())]
    for parameter, value in pairs:
        for each in value if type(value) in (list, tuple) else (value,):
            live = live_number(each)
            if live is not None and live.is_int() and "int" in str(parameter.type):
                live.numbers.need(live)
