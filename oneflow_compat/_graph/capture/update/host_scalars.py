"""Python numbers that change from call to call: learning rates and step counters.

An optimizer computes with Python floats (`lr / (1 - beta1 ** step)`). The program does the same arithmetic in
Python floats, so that it gets exactly the same values. A HostScalar is a float that also remembers the fx
node that computes it. When a HostScalar is passed to a torch operator, `ScalarMode` passes a marker number
instead. The recorder turns the marker back into the node, so no operator needs to know about HostScalars.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from ...errors import CaptureError
from ...guards.conditions import Condition
from ...program.python_values import NumberOfCapture
from ..patches.patching import called_method, patched_attributes

if TYPE_CHECKING:
    from torch.fx import Graph, Node


_MATH = ("sqrt", "exp", "log", "log1p", "expm1", "pow", "cos", "sin", "tanh", "floor", "ceil")


class HostScalar(NumberOfCapture, float):
    """A float with the node that computes it. Arithmetic gives HostScalars; comparisons add a guard."""

    __slots__ = ("node", "trace")
    node: Node
    trace: ScalarTrace

    def __new__(cls, value: Any, node: Node, trace: ScalarTrace) -> HostScalar:
        self = float.__new__(cls, value)
        self.node = node
        self.trace = trace
        return self

    def plain(self) -> float:
        return float.__add__(self, 0.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (self.plain(),)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __copy__(self) -> Any:
        return self

    def __hash__(self) -> Any:
        return float.__hash__(self)

    def __bool__(self) -> Any:
        return self.trace.guard(self, operator.ne, 0.0)

    def __float__(self) -> NoReturn:
        raise CaptureError(
            "float() was called on a number that changes from call to call (a learning rate or a step"
            " counter)",
            "Use the number directly in arithmetic; the program computes it anew in each call.",
        )

    __int__ = __index__ = __trunc__ = __float__

    def __neg__(self) -> Any:
        return self.trace.compute(operator.neg, (self,), -self.plain())

    def __pos__(self) -> HostScalar:
        return self

    def __abs__(self) -> Any:
        return self.trace.compute(operator.abs, (self,), abs(self.plain()))


def _plain(x: Any) -> Any:
    return x.plain() if isinstance(x, HostScalar) else x


def _binary(name: str, function: Callable[..., Any], swapped: Any) -> Any:
    base = getattr(float, name)

    def method(self: HostScalar, operand: Any) -> Any:
        if isinstance(operand, torch.Tensor):
            return NotImplemented
        if not isinstance(operand, (int, float)):
            return NotImplemented
        value = base(self.plain(), float(_plain(operand)))
        args = (operand, self) if swapped else (self, operand)
        return self.trace.compute(function, args, value)

    method.__name__ = name
    return method


def _compare(name: str, function: Callable[..., Any]) -> Any:
    def method(self: HostScalar, operand: Any) -> Any:
        if isinstance(operand, torch.Tensor) or not isinstance(operand, (int, float)):
            return NotImplemented
        return self.trace.guard(self, function, operand)

    method.__name__ = name
    return method


for _name in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod"):
    setattr(HostScalar, f"__{_name}__", _binary(f"__{_name}__", getattr(operator, _name), False))
    setattr(HostScalar, f"__r{_name}__", _binary(f"__r{_name}__", getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(HostScalar, f"__{_name}__", _compare(f"__{_name}__", getattr(operator, _name)))


class ScalarTrace:
    """Create HostScalars, and record their arithmetic into the fx graph of a recorder."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.markers: dict[float, object] = {}  # marker number -> node
        self.values: dict[float, float] = {}  # marker number -> its value in this capture
        self.guards: list[Condition] = []
        self.value_of: dict[Any, Any] = {}  # node -> its value in this capture
        self._marker_of: dict[Any, Any] = {}
        self._same: dict[Any, Any] = {}

    def scalar(self, value: Any, node: Node) -> HostScalar:
        self.value_of.setdefault(node, float(value))
        return HostScalar(value, node, self)

    def compute(self, function: Any, args: Any, value: Any) -> Any:
        if isinstance(value, complex):
            raise CaptureError(
                "the optimizer's arithmetic on a changing number gave a complex number",
                "Check the learning rate.",
            )
        nodes = tuple(a.node if isinstance(a, HostScalar) else a for a in args)
        node = self._same.get((function, nodes))
        if node is None:
            node = self._same[function, nodes] = self.graph.call_function(function, nodes)
            self.value_of[node] = value
        return HostScalar(value, node, self)

    def guard(self, scalar: Any, comparison: Any, operand: Any) -> Any:
        outcome = bool(comparison(scalar.plain(), _plain(operand)))
        right = operand.node if isinstance(operand, HostScalar) else operand
        condition = Condition(scalar.node, comparison, right, outcome)
        if condition not in self.guards:
            self.guards.append(condition)
        return outcome

    def marker(self, scalar: Any) -> float:
        """A number that stands for the scalar in operator arguments; the recorder matches it by equality."""
        marker = self._marker_of.get(scalar.node)
        if marker is None:
            marker = 0.0007316283950617284 * (1.0 + (len(self.markers) + 1) * 2.0**-40)
            self.markers[marker] = scalar.node
            self.values[marker] = scalar.plain()
            self._marker_of[scalar.node] = marker
        return marker


class ScalarMode(TorchFunctionMode):
    """Hide HostScalars from operators while an optimizer steps.

    `.item()` of optimizer state returns a HostScalar in this mode.
    """

    def __init__(self, trace: Any, item: Any) -> None:
        super().__init__()
        self.trace = trace
        self.item = item  # tensor -> HostScalar

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        func = called_method(func)
        if func is torch.Tensor.item or func is torch.Tensor.__float__:
            return self.item(args[0])
        if func is torch.Tensor.__bool__:
            return bool(self.item(args[0]))
        if func is torch.tensor or func is torch.as_tensor:
            if _has_scalar(args[0]):
                return self._tensor(
                    args[0], {k: v for k, v in (kwargs or {}).items() if k in ("dtype", "device")}
                )
        if func is torch.Tensor.__setitem__ and isinstance(args[2], HostScalar):
            # torch makes a constant of a number, in C++
            options = {"dtype": args[0].dtype, "device": args[0].device}
            args = (*args[:2], self._tensor(args[2], options))
        args = self._hide(args)
        kwargs = {k: self._hide(v) for k, v in kwargs.items()} if kwargs else {}
        return func(*args, **kwargs)

    def _tensor(self, value: Any, options: Any) -> Any:
        """torch.tensor() of a number or of nested lists of numbers."""
        if isinstance(value, (list, tuple)):
            return torch.stack([self._tensor(v, options) for v in value])
        if isinstance(value, HostScalar):
            return torch.full((), self.trace.marker(value), **options)
        return (
            value.to(**options)
            if isinstance(value, torch.Tensor)
            else torch.full((), float(value), **options)
        )

    def _hide(self, x: Any) -> Any:
        if isinstance(x, HostScalar):
            return self.trace.marker(x)
        if type(x) in (list, tuple):
            if any(isinstance(y, (HostScalar, list, tuple)) for y in x):
                return type(x)(self._hide(y) for y in x)
        return x


def _has_scalar(value: Any) -> bool:
    return isinstance(value, HostScalar) or isinstance(value, (list, tuple)) and any(map(_has_scalar, value))


def traced_math() -> Any:
    """While active, the functions of _MATH also accept HostScalars; other arguments behave as before."""
    return patched_attributes((math, name, _traced(getattr(math, name))) for name in _MATH)


def _traced(original: Callable[..., Any]) -> Any:
    def function(*args: Any) -> Any:
        for a in args:
            if isinstance(a, HostScalar):
                return a.trace.compute(original, args, original(*map(_plain, args)))
        return original(*args)

    return function
