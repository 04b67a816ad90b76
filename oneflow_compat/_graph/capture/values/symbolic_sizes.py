"""Sizes that depend on values: of x[mask], nonzero(), unique(), and integers read with .item().

While build() is captured such a size is one of torch's unbacked symbols. The program reads it off the tensor
that it first belongs to (`aten.sym_size`). It computes what views, new tensors and scalars need of it, so
each run has its own sizes. One branch on a size is recorded, with an assertion. If a call takes the other
branch, another program serves it (engine.py).
"""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...._global.marks import several
from ...errors import KEEP_SIZE, CaptureError, location_text, user_location
from ...program.symbolic import Branch, branch_message
from ..patches.patching import patched_attributes
from .likely_branches import is_sampled, likely_outcome

if TYPE_CHECKING:
    from torch.fx import Node

    from ..interfaces import RecorderInterface


aten = torch.ops.aten


# A line that branches this often on sampled numbers is taken for a loop that ends with the other outcome, for
# example sampling until all numbers lie in a range. Otherwise its capture would never end.
_LOOP = 32


_IS_FINITE = math.isfinite  # captures patch the module
# a test of floats -> the operator for tensors, and the one for swapped operands
_TESTS: dict[Any, tuple[Any, Any]] = {
    operator.lt: (aten.lt, aten.gt),
    operator.le: (aten.le, aten.ge),
    operator.gt: (aten.gt, aten.lt),
    operator.ge: (aten.ge, aten.le),
    operator.eq: (aten.eq, aten.eq),
    operator.ne: (aten.ne, aten.ne),
    math.isnan: (aten.isnan, None),
    math.isinf: (aten.isinf, None),
}


class Sizes:
    """The nodes of a recorder that compute sizes."""

    def __init__(self, recorder: RecorderInterface) -> None:
        self.recorder = recorder
        self.nodes: dict[Any, Any] = {}  # expression -> node
        self.branches: dict[Branch, bool] = {}  # branch -> its outcome in this program
        self.expected: dict[Branch, bool] = {}  # branch -> the outcome that an earlier call took
        self.branches_on_floats = False  # whether a branch on floats has an outcome, too
        self.outcomes: dict[Node, bool] = {}  # outcomes of tests of floats
        self.vary = False  # values that decide sizes have changed between calls: no program for each
        self.fixed = False  # the program is made for values that decide sizes

    def begin(self) -> None:
        """Let the symbolic mode have unknown sizes."""
        mode = self.recorder.fake_mode
        if mode.shape_env is None:
            from .size_environment import SizeEnvironment  # the module imports sympy

            mode.shape_env = SizeEnvironment(
                self.branch, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
            )
            mode.cache_enabled = False  # torch's cache takes longer than its results, if sizes are unknown

    def end(self) -> None:
        """Forbid further questions, which would be recorded after the end of the capture."""
        environment: Any = self.recorder.fake_mode.shape_env
        if environment is not None:
            environment.end_capture()

    def branch(self, condition: Any, likely: Any, location: Any) -> Any:
        """Return the outcome of a branch of build(), and record an assertion.

        The branch is on sizes, or on a bool tensor that a node computes.
        `location` is a (file, line, function).
        """
        if type(condition) is torch.SymBool and self.is_of_arguments(condition):
            return bool(condition)  # the answer of this call's sizes, which becomes a guard
        location = location or ("", 0, "build")
        branch_key = (*location[:2], self._repetitions(location))
        outcome = self.branches[branch_key] = self.expected.get(branch_key, bool(likely))
        holds = condition
        if type(condition) is not torch.fx.Node:
            holds = self.record(aten.scalar_tensor.default, (self.node(condition),))
        if not outcome:
            holds = self.record(aten.logical_not.default, (holds,))
        branch_location = location_text(location).replace('"', "'").replace("\\", "/")
        self.record(
            aten._assert_async.msg,
            (holds, branch_message(len(self.branches) - 1, branch_location)),
        )
        return outcome

    def drop_tests(self) -> None:
        """Remove tests of numbers that the program makes on tensors."""
        for node in self.outcomes:
            if not node.users:
                self.recorder.graph.erase_node(node)

    def is_of_arguments(self, size: Any) -> bool:
        """Whether a size is computed from dimensions of arguments alone, so that no value decides it."""
        dynamic = self.recorder.dynamic
        return dynamic is not None and size.node.expr.free_symbols <= dynamic.symbols()

    @property
    def depend_on_values(self) -> bool:
        """Whether some sizes of the program depend on values."""
        dynamic = self.recorder.dynamic
        symbols = dynamic.symbols() if dynamic is not None else ()
        return any(symbol not in symbols for size in self.nodes for symbol in size.free_symbols)

    def define(self, node: Node, tensor: torch.Tensor) -> None:
        """Record the sizes that first appear in this result.

        A number that becomes a size is marked as size-like, because torch assumes that sizes exceed one.
        """
        for dim, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt):
                times, symbol = size.node._expr.as_coeff_Mul()
                if symbol.is_Symbol and not self.is_of_arguments(size):
                    size.node.shape_env.size_like.add(symbol)
                if symbol.is_Symbol and symbol not in self.nodes:
                    size_node = self.record(aten.sym_size.int, (node, dim))
                    self.nodes[symbol] = (
                        size_node if times == 1 else self.record(operator.floordiv, (size_node, int(times)))
                    )

    def count(self, node: Node) -> Any:
        """Return the integer of a one-element tensor as a Python symbolic integer (`mask.sum().item()`)."""
        self.begin()
        environment: Any = self.recorder.fake_mode.shape_env
        size = environment.create_unbacked_symint()
        self.nodes[size.node.expr] = self.record(aten._local_scalar_dense.default, (node,))
        return size

    def branch_on_values(self, node: Node) -> Any:
        """Return the outcome of a branch on a tensor with a likely value, else None."""
        likely = None if several() else likely_outcome(node)
        if likely is None:
            return self.branch_on_floats(node)
        location = user_location()
        if self._repetitions(location) >= _LOOP and is_sampled(node):
            likely = not likely
        return self.branch(node, likely, location)

    def branch_on_floats(self, node: Node) -> bool | None:
        """Return the outcome of a branch on a bool tensor, or on a bool of Python; None if it may have none.

        Without an earlier call the outcome is False, as of `if norm > limit`, but numbers are finite.
        """
        likely = node.target is _IS_FINITE
        if several() or not self.branches_on_floats or is_sampled(node):
            return None
        if node in self.outcomes:
            return self.outcomes[node]
        outcome: bool = self.branch(self._tested(node), likely, user_location())
        if node.meta.get("tensor") is None:
            self.outcomes[node] = outcome
        return outcome

    def _tested(self, node: Node) -> Any:
        """Return a bool tensor that a node computes as a number: a comparison of floats, or a test of one.

        Compilers take the numbers for symbols, and fold `x != x`, which is true of NaN.
        """
        if node.meta.get("tensor") is not None:
            return node
        values = [
            self._as_tensor(value) if isinstance(value, torch.fx.Node) else value for value in node.args
        ]
        if node.target is _IS_FINITE:
            return self.record(aten.lt.Scalar, (self.record(aten.abs.default, (values[0],)), math.inf))
        test = _TESTS.get(node.target)
        if test is None:
            return self.record(aten.scalar_tensor.default, (node,))
        operator_, reflected = test
        if len(values) == 1:
            return self.record(operator_.default, (values[0],))
        if isinstance(values[0], torch.fx.Node):
            overload = "Tensor" if isinstance(values[1], torch.fx.Node) else "Scalar"
            return self.record(getattr(operator_, overload), tuple(values))
        return self.record(reflected.Scalar, (values[1], values[0]))

    def _as_tensor(self, number: Any) -> Any:
        """Return a tensor of float64 with a float that a node computes."""
        if number.target is aten._local_scalar_dense.default:
            return self.record(aten._to_copy.default, number.args, {"dtype": torch.float64})
        return self.record(aten.scalar_tensor.default, (number,), {"dtype": torch.float64})

    def _repetitions(self, location: Any) -> int:
        """Return how often a line has branched."""
        return sum(branch[:2] == location[:2] for branch in self.branches) if location else 0

    def node(self, size: Any) -> Any:
        """Return the node of a size or of a scalar computed from sizes, or its value if it is a number."""
        expression = size.node.expr
        if expression.is_number:
            if type(size) is torch.SymBool:
                return expression.__bool__()
            return (int if type(size) is torch.SymInt else float)(expression)
        size_node = self.nodes.get(expression)
        if size_node is None:
            size_node = self.nodes[expression] = self._computed(expression)
            self.recorder._annotate(size_node)
        return size_node

    def _computed(self, expression: Any) -> Any:
        """Record the arithmetic of an expression of sizes."""
        from torch.utils._sympy.interp import sympy_interp  # the module imports sympy

        tracer = torch.fx.proxy.GraphAppendingTracer(self.recorder.graph)
        try:
            symbols = {
                symbol: torch.fx.Proxy(self.nodes[symbol], tracer) for symbol in expression.free_symbols
            }
            with patched_attributes([(logging.getLogger(sympy_interp.__module__), "disabled", True)]):
                return sympy_interp(_arithmetic(), symbols, expression).node
        except Exception as error:  # functions of sizes that fx cannot record
            raise CaptureError(
                f"build() computes {expression} of sizes that depend on values, which a program has no form"
                " for",
                KEEP_SIZE,
            ) from error

    def reshape_when_run(self) -> None:
        """Let a reshape that symbols recorded as a copy be a view if the sizes of a run allow one.

        So it is in eager mode, where a matrix product reads the view in place.
        """
        graph, reshaped = self.recorder.graph, set()
        for node in graph.find_nodes(op="call_function", target=aten._unsafe_view.default):
            copy = node.args[0]
            if (
                copy.target is aten.clone.default
                and len(copy.users) == 1
                and copy.kwargs.get("memory_format") is torch.contiguous_format
            ):
                node.args = (copy.args[0], node.args[1])
                graph.erase_node(copy)
                reshaped.add(node)
        if reshaped:  # a view of such a view may have to copy
            reshaped.update(graph.find_nodes(op="call_function", target=aten.view.default))
        for node in reshaped:
            node.target = aten.reshape.default

    def record(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        node = self.recorder.graph.call_function(target, args, kwargs)
        self.recorder._annotate(node)
        return node


@functools.cache
def _arithmetic() -> Any:
    """Return Python's arithmetic on fx proxies."""
    from torch.utils._sympy.reference import PythonReferenceAnalysis  # the module imports sympy

    class Arithmetic(PythonReferenceAnalysis):
        truediv = int_truediv = staticmethod(operator.truediv)
        floor_to_int = staticmethod(lambda x, dtype: _call(math.floor, x))
        ceil_to_int = staticmethod(lambda x, dtype: _call(math.ceil, x))
        trunc_to_int = staticmethod(lambda x, dtype: _call(math.trunc, x))

        @staticmethod
        def to_dtype(x: torch.Tensor, dtype: torch.dtype) -> Any:
            return x / 1  # a size becomes the same number as a float

    return Arithmetic


def _call(function: Callable[..., Any], proxy: Any) -> Any:
    """Record a call of a function of Python's math on a proxy."""
    return proxy.tracer.create_proxy("call_function", function, (proxy,), {})
