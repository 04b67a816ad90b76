"""Sizes that depend on values: of x[mask], nonzero(), unique() and what is computed from them.

While build() is captured such a size is one of torch's unbacked symbols. The program reads it off the tensor it first belongs to
(`aten.sym_size`), and computes what views, new tensors and numbers need of it, so each run has sizes of its own.
"""
from __future__ import annotations

import functools
import operator
import sys

import torch

from .errors import KEEP_SIZE, CaptureError, is_internal

aten = torch.ops.aten
KINDS = {torch.SymInt, torch.SymFloat, torch.SymBool}


class Sizes:
    """The nodes of a recorder that compute sizes."""

    def __init__(self, recorder):
        self.recorder, self.nodes = recorder, {}  # expression -> node
        self.vary = False  # values that decide sizes have changed between calls: no program for each
        self.known = False  # the program is made for values that decide sizes

    def begin(self):
        """Let the symbolic mode have unknown sizes."""
        mode = self.recorder.fake_mode
        if mode.shape_env is None:
            mode.shape_env = _environment()(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True)

    def define(self, node, tensor):
        """Sizes that are first seen as one of this result."""
        for dim, size in enumerate(tensor.shape):
            if type(size) is torch.SymInt:
                expression = size.node._expr
                if expression.is_Symbol and expression not in self.nodes:
                    self.nodes[expression] = self._made(aten.sym_size.int, (node, dim))

    def node(self, number):
        """The node of a size or of a number computed from sizes; a plain number where it is known after all."""
        from torch.utils._sympy.interp import sympy_interp

        expression = number.node.expr
        if expression.is_number:
            return expression.__bool__() if type(number) is torch.SymBool else (int if type(number) is torch.SymInt else float)(expression)
        found = self.nodes.get(expression)
        if found is None:
            tracer = torch.fx.proxy.GraphAppendingTracer(self.recorder.graph)
            try:
                known = {symbol: torch.fx.Proxy(self.nodes[symbol], tracer) for symbol in expression.free_symbols}
                found = self.nodes[expression] = sympy_interp(_arithmetic(), known, expression).node
            except Exception as error:  # functions of sizes that fx cannot record
                raise CaptureError(f"build() computes {expression} of sizes that depend on values, which a program has no form for", KEEP_SIZE) from error
            self.recorder._annotate(found)
        return found

    def _made(self, target, args):
        made = self.recorder.graph.call_function(target, args)
        self.recorder._annotate(made)
        return made


@functools.cache
def _arithmetic():
    """Python's arithmetic on fx proxies."""
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    class Arithmetic(PythonReferenceAnalysis):
        truediv = int_truediv = staticmethod(operator.truediv)

        @staticmethod
        def to_dtype(x, dtype):
            return x / 1  # of a size: the same number as a float

    return Arithmetic


@functools.cache
def _environment():
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

    class Environment(ShapeEnv):
        """Where torch itself asks whether there are no elements, its general way is recorded, which serves an empty tensor too; a branch of the user's is an error."""

        def evaluate_sym_node(self, sym_node, size_oblivious=False, fallback_value=None):
            try:
                return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
            except GuardOnDataDependentSymNode:
                if size_oblivious or sym_node.pytype is not bool or _asked_by_user():  # of a number torch would take the smallest
                    raise
                return super().evaluate_sym_node(sym_node, True, fallback_value)

    return Environment


_CONVERSIONS = {"__bool__", "__int__", "__index__", "__float__"}


def _asked_by_user():
    """Is a size made a Python value, by an `if` say, in code that is neither torch's nor ours?"""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in _CONVERSIONS and isinstance(frame.f_locals.get("self"), tuple(KINDS)):
            return not is_internal(frame.f_back.f_code.co_filename)
        frame = frame.f_back
    return False


def of_unknown_sizes(func, args, kwargs):
    """The symbolic results of an operator some of whose arguments have unknown sizes. Call it in the symbolic mode."""
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if not asks_for_a_size(error):
            raise
        from torch._decomp import decomposition_table

        made = decomposition_table.get(func)
        if made is not None:
            try:
                return made(*args, **kwargs)
            except RuntimeError as second:
                if not asks_for_a_size(second):
                    raise
        raise CaptureError(f"{func} has no symbolic form for sizes that depend on values (of x[mask], nonzero() or the like)", KEEP_SIZE) from error


def asks_for_a_size(error) -> bool:
    """Does torch say that it needs the number an unknown size stands for?"""
    text = str(error)
    return type(error).__name__ in ("GuardOnDataDependentSymNode", "UnsupportedOperatorException") or "symbolic sizes" in text or "concrete integers" in text or "NO overloaded args" in text


def known(size):
    """A dimension for node.meta: the number, or the text of an unknown one."""
    return size if type(size) is int else str(size.node.expr) if size.node.maybe_as_int() is None else size.node.maybe_as_int()
