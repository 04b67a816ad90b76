"""Arithmetic of numbers that only a run knows, and of the symbols that torch has for integers of tensors.

hits.item() * weight    # torch's symbol of an integer, and a number of Python that is an input
loss.item() / n.item()  # a float of a tensor, and torch's symbol
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.fx.experimental.sym_node import SymNode

from ...errors import KEEP_VALUE
from ...program.live_numbers import LiveNumber, NumbersOfTensors
from ..patches.patching import patched_attributes

if TYPE_CHECKING:
    from ..interfaces import RecorderInterface
    from .symbolic_sizes import Sizes

_ARITHMETIC = "add sub mul mod float_pow pow_by_natural float_truediv int_truediv int_floordiv"
_OPERATIONS = [*_ARITHMETIC.split(), "eq", "ne", "lt", "le", "gt", "ge"]


class NumbersOfRun(NumbersOfTensors):
    """The numbers of one capture that only a run knows."""

    def __init__(self, sizes: Sizes, made: list[weakref.ref[LiveNumber]], advice: str = KEEP_VALUE) -> None:
        super().__init__(sizes.record, made, advice, sizes.branch_on_floats)
        self.sizes = sizes

    def converted(self, operand: LiveNumber | SymNode) -> Any:
        """Return torch's symbol of an integer, or of its float, as a number."""
        if isinstance(operand, LiveNumber) or operand.is_bool():
            return operand
        number_type = int if operand.is_int() else float
        node = self.sizes.node((torch.SymInt if operand.is_int() else torch.SymFloat)(operand))
        return self.unknown(node, number_type) if isinstance(node, Node) else LiveNumber(self, node, node)


def arithmetic_of_symbols(recorder: RecorderInterface) -> contextlib.AbstractContextManager[None]:
    """While build() is captured, torch's symbols calculate with numbers to the right of them."""

    def operation(name: str) -> Any:
        original = getattr(SymNode, name)

        def calculate(self: SymNode, other: SymNode | LiveNumber) -> Any:
            if not isinstance(other, LiveNumber):
                return original(self, other)
            return getattr(NumbersOfRun(recorder.sizes, recorder.numbers).converted(self), name)(other)

        return calculate

    return patched_attributes([(SymNode, name, operation(name)) for name in _OPERATIONS])
