"""Sizes that depend on values: of x[mask], nonzero(), unique(), integers read with .item(), and what is
computed from them.

While build() is captured such a size is one of torch's unbacked symbols. The program reads it off the tensor
it first belongs to
(`aten.sym_size`), and computes what views, new tensors and numbers need of it, so each run has sizes of its
own. A branch on a
size is recorded one way, the program checks that it goes that way, and another program is made when it does
not (engine.py).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
import os
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..._active import capturing
from ..._global.tensor import several
from ..errors import KEEP_SIZE, CaptureError, is_internal, location_text, user_location
from ..program.symbolic import SYMBOLIC_NUMBERS, branch_message

aten = torch.ops.aten


class Sizes:
    """The nodes of a recorder that compute sizes."""

    def __init__(self, recorder):
        self.recorder, self.nodes = recorder, {}  # expression -> node
        self.branches: dict = {}  # (file, line, how many-eth time there) -> the way it goes in this program
        self.expected: dict = {}  # the same, as far as it is known before the capture
        self.vary = False  # values that decide sizes have changed between calls: no program for each
        self.known = False  # the program is made for values that decide sizes

    def begin(self):
        """Let the symbolic mode have unknown sizes."""
        mode = self.recorder.fake_mode
        if mode.shape_env is None:
            mode.shape_env = _environment()(
                self.branch, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
            )
            mode.cache_enabled = (
                False  # torch's own, which of unknown sizes takes twice as long as finding the results out
            )

    def branch(self, condition, likely, location):
        """Return the direction that build() takes at a branch, and record an assertion.

        The branch is on sizes, or on a bool tensor that a node computes.
        `location` is a (file, line, function).
        """
        if type(condition) is torch.SymBool and self.is_of_arguments(condition):
            return bool(condition)  # the answer of this call's sizes, which becomes a guard
        location = location or ("", 0, "build")
        branch_key = (*location[:2], sum(p[:2] == location[:2] for p in self.branches))
        direction = self.branches[branch_key] = self.expected.get(branch_key, bool(likely))
        holds = (
            condition
            if type(condition) is torch.fx.Node
            else self._made(aten.scalar_tensor.default, (self.node(condition),))
        )
        if not direction:
            holds = self._made(aten.logical_not.default, (holds,))
        branch_location = location_text(location).replace('"', "'").replace("\\", "/")
        self._made(
            aten._assert_async.msg,
            (holds, branch_message(len(self.branches) - 1, branch_location)),
        )
        return direction

    def is_of_arguments(self, size) -> bool:
        """Whether a size is computed from dimensions of arguments alone, so that no value decides it."""
        dynamic = self.recorder.dynamic
        return dynamic is not None and size.node.expr.free_symbols <= dynamic.symbols()

    @property
    def depend_on_values(self) -> bool:
        """Whether some sizes of the program depend on values."""
        dynamic = self.recorder.dynamic
        symbols = dynamic.symbols() if dynamic is not None else ()
        return any(symbol not in symbols for size in self.nodes for symbol in size.free_symbols)

    def define(self, node, tensor):
        """Record the sizes that first appear in this result.

        A number that becomes a size is marked as size-like, because torch assumes that sizes exceed one.
        """
        for dim, size in enumerate(tensor.shape):
            if type(size) is torch.SymInt:
                times, symbol = size.node._expr.as_coeff_Mul()
                if symbol.is_Symbol and not self.is_of_arguments(size):
                    size.node.shape_env.size_like.add(symbol)
                if symbol.is_Symbol and symbol not in self.nodes:
                    size_node = self._made(aten.sym_size.int, (node, dim))
                    self.nodes[symbol] = (
                        size_node if times == 1 else self._made(operator.floordiv, (size_node, int(times)))
                    )

    def count(self, node):
        """Return the integer of a one-element tensor as a Python symbolic integer (`mask.sum().item()`)."""
        self.begin()
        size = self.recorder.fake_mode.shape_env.create_unbacked_symint()
        self.nodes[size.node.expr] = self._made(aten._local_scalar_dense.default, (node,))
        return size

    def branch_on_values(self, node):
        """Return the direction of a branch on a tensor whose likely value `_likely` knows, else None."""
        likely = None if several() else _likely(node)
        return None if likely is None else self.branch(node, likely, user_location())

    def node(self, size):
        """Return the node of a size or of a number computed from sizes, or its value if known."""
        from torch.utils._sympy.interp import sympy_interp

        expression = size.node.expr
        if expression.is_number:
            return (
                expression.__bool__()
                if type(size) is torch.SymBool
                else (int if type(size) is torch.SymInt else float)(expression)
            )
        size_node = self.nodes.get(expression)
        if size_node is None:
            tracer = torch.fx.proxy.GraphAppendingTracer(self.recorder.graph)
            try:
                symbols = {
                    symbol: torch.fx.Proxy(self.nodes[symbol], tracer) for symbol in expression.free_symbols
                }
                size_node = self.nodes[expression] = sympy_interp(_arithmetic(), symbols, expression).node
            except Exception as error:  # functions of sizes that fx cannot record
                raise CaptureError(
                    f"build() computes {expression} of sizes that depend on values, which a program has no"
                    " form for",
                    KEEP_SIZE,
                ) from error
            self.recorder._annotate(size_node)
        return size_node

    def reshape_when_run(self):
        """A reshape that symbols made a copy is the view it is in eager where the sizes of a run allow one: a
        product of matrices reads it in place.
        """
        graph, copies = self.recorder.graph, set()
        for node in graph.find_nodes(op="call_function", target=aten._unsafe_view.default):
            copy = node.args[0]
            if (
                copy.target is aten.clone.default
                and len(copy.users) == 1
                and copy.kwargs.get("memory_format") is torch.contiguous_format
            ):
                node.args = (copy.args[0], node.args[1])
                graph.erase_node(copy)
                copies.add(node)
        for node in copies and graph.find_nodes(
            op="call_function", target=aten.view.default
        ):  # of such a view it may have to copy
            node.target = aten.reshape.default
        for node in copies:
            node.target = aten.reshape.default

    def _made(self, target, args):
        made = self.recorder.graph.call_function(target, args)
        self.recorder._annotate(made)
        return made


def _overloads(*names):
    return {
        getattr(getattr(aten, name), o)
        for name in names
        for o in ("default", "Tensor", "Scalar", "dim", "dims")
        if hasattr(getattr(aten, name), o)
    }


_NOT = _overloads("logical_not", "bitwise_not")
_JOINED = _overloads("logical_and", "bitwise_and", "mul", "logical_or", "bitwise_or")
_ANY_ALL = _overloads("any", "all")
_NOT_FINITE = _overloads("isinf", "isnan", "isposinf", "isneginf")
_EQUAL, _FEW = _overloads("eq"), _overloads("lt", "le")
_COMPARED = _EQUAL | _FEW | _overloads("ne", "gt", "ge")


def _likely(node, of_any=None):
    """The likely truth of a bool tensor made of comparisons of integers or of tests that numbers are finite;
    None of another one.

    `of_any`: it is reduced by any() (True) or all() (False).
    """
    target, args = node.target, node.args
    if target in _NOT:
        likely = _likely(args[0], None if of_any is None else not of_any)
        return None if likely is None else not likely
    if target in _JOINED:
        parts = [_likely(a, of_any) if isinstance(a, torch.fx.Node) else None for a in args]
        return (
            None
            if None in parts
            else (any if target.__name__.startswith(("logical_or", "bitwise_or")) else all)(parts)
        )
    if target in _ANY_ALL:
        return _likely(args[0], target.__name__.startswith("any"))
    if target in _NOT_FINITE:
        return False
    if target not in _COMPARED:
        return None
    if args[0] is args[1] or args[1] in (
        math.inf,
        -math.inf,
    ):  # x == x, abs(x) != inf: parts of isfinite() and isnan()
        return (target in _EQUAL) is (args[0] is args[1])
    dtypes = [a.meta["tensor"][1] if isinstance(a, torch.fx.Node) else type(a) for a in args]
    if all(
        not (d.is_floating_point or d.is_complex) if isinstance(d, torch.dtype) else d in (int, float)
        for d in dtypes
    ):
        return target not in _EQUAL | _FEW if of_any is None else of_any  # counts are large
    return None


@contextlib.contextmanager
def builtins_of_sizes():
    """While build() is captured, Python's len takes tensors of unknown sizes, and min and max numbers
    computed from sizes, and tensors of one number.
    """
    from .patching import patched

    with (
        # the text of a symbol ("s0") as a key would be the same for all sizes
        patched(torch.SymInt, "__repr__", _text_of_number),
        patched(builtins, "len", _length),
        patched(builtins, "min", _extreme(torch.sym_min, operator.lt)),
        patched(builtins, "max", _extreme(torch.sym_max, operator.gt)),
    ):
        yield


@functools.cache
def _arithmetic():
    """Python's arithmetic on fx proxies."""
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    class Arithmetic(PythonReferenceAnalysis):
        truediv = int_truediv = staticmethod(operator.truediv)
        floor_to_int = staticmethod(lambda x, dtype: _call(math.floor, x))
        ceil_to_int = staticmethod(lambda x, dtype: _call(math.ceil, x))
        trunc_to_int = staticmethod(lambda x, dtype: _call(math.trunc, x))

        @staticmethod
        def to_dtype(x, dtype):
            return x / 1  # of a size: the same number as a float

    return Arithmetic


def _call(function, number):
    """A call of a function of Python's math on a proxy."""
    return number.tracer.create_proxy("call_function", function, (number,), {})


def _text_of_number(original):
    """The text of a size in code of the user is that of its number, which the program is then guarded by."""

    def text(size):
        name = sys._getframe(1).f_code.co_filename
        of_user = name.startswith("<") or not is_internal(name)
        return repr(int(size)) if of_user and capturing() else original(size)

    return text


def _length(original):
    return lambda x: (
        x.shape[0] if type(x) is FakeTensor and x._has_symbolic_sizes_strides and x.dim() else original(x)
    )


def _extreme(of_sizes, better):
    def make(original):
        def extreme(*values, **named):
            if len(values) == 2 and not named:
                if type(values[0]) in SYMBOLIC_NUMBERS or type(values[1]) in SYMBOLIC_NUMBERS:
                    return of_sizes(*values)
                tensors = [v for v in values if type(v) is FakeTensor and v.dim() == 0]
                kinds = (
                    (int, float) if tensors and tensors[0].is_floating_point() else (int,)
                )  # of integers and 0.5, each has its dtype: a branch
                if tensors and all(v is tensors[0] or type(v) in kinds for v in values):
                    return torch.where(better(values[1], values[0]), values[1], values[0])
            return original(*values, **named)

        return extreme

    return make


@functools.cache
def _environment():
    import sympy
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
    from torch.utils._sympy.functions import FloorDiv

    class Environment(ShapeEnv):
        """Where torch itself asks whether there are no elements, its general way is recorded, which serves an
        empty tensor too; a branch of the user's is tested.
        """

        def __init__(self, branch, **options):
            super().__init__(**options)
            self.branch = branch
            self.asked_at: dict = {}  # symbol of a dimension -> where its number was first needed

        def evaluate_sym_node(self, sym_node, size_oblivious=False, fallback_value=None):
            guards = len(self.guards)
            try:
                result = super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
                if len(self.guards) > guards:
                    self._note_location(self.guards[-1].expr)
                return result
            except GuardOnDataDependentSymNode:
                if size_oblivious or sym_node.pytype is not bool:  # of a number torch would take the smallest
                    raise
                frame, of_a_layer = _asked_by()
                if frame is None:
                    try:
                        return super().evaluate_sym_node(sym_node, True, fallback_value)
                    except GuardOnDataDependentSymNode:
                        if not _of_a_size(sym_node.expr, self.size_like):
                            raise
                        return sym_node.expr.xreplace(
                            dict.fromkeys(sym_node.expr.free_symbols, sympy.Integer(2) ** 60)
                        )
                if several():  # ranks that go different ways would wait for each other
                    raise
            try:
                likely = super().evaluate_sym_node(sym_node, True, fallback_value)
            except GuardOnDataDependentSymNode:
                likely = of_a_layer and isinstance(sym_node.expr, sympy.Eq)  # that the shapes fit
            location = (
                user_location()
                if of_a_layer
                else (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            )
            return sympy.true if self.branch(torch.SymBool(sym_node), likely, location) else sympy.false

        def _note_location(self, guard):
            for symbol in guard.free_symbols:
                if isinstance(guard, sympy.Eq) and symbol not in self.asked_at:
                    if self.simplify(symbol).is_number:
                        self.asked_at[symbol] = user_location()

    def _of_a_size(condition, sizes):
        """Return True for a comparison of 0 or 1 with quotients and multiples of sizes.

        A view's -1 gives such a quotient (u0 // 4). Torch itself decides comparisons of sizes alone.
        """
        if not isinstance(condition, sympy.core.relational.Relational):
            return False
        computed, number = condition.args if condition.rhs.is_number else condition.args[::-1]
        return number in (0, 1) and all(
            a in sizes or a.is_Integer and a > 0 or isinstance(a, (FloorDiv, sympy.Mul))
            for a in sympy.preorder_traversal(computed)
        )

    return Environment


_CONVERSIONS = {"__bool__", "__int__", "__index__", "__float__"}


def _asked_by():
    """(frame, is it of torch.nn) where a size is made a Python value, by an `if` say, in code of torch.nn or
    neither torch's nor ours; else (None, False).
    """
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in _CONVERSIONS and isinstance(
            frame.f_locals.get("self"), tuple(SYMBOLIC_NUMBERS)
        ):
            name = frame.f_back.f_code.co_filename
            if (
                name == frame.f_code.co_filename and frame.f_back.f_code.co_name in _CONVERSIONS
            ):  # `if n`: of n != 0
                frame = frame.f_back
                continue
            of_a_layer = name.startswith(os.path.dirname(torch.nn.__file__))
            users = of_a_layer or name.startswith("<") or not is_internal(name)  # "<...": a prompt, exec()
            return (frame.f_back, of_a_layer) if users else (None, False)
        frame = frame.f_back
    return None, False


def of_unknown_sizes(func, args, kwargs, environment):
    """The symbolic results of an operator some of whose arguments have unknown sizes.

    Call it in the symbolic mode.
    """
    from .equal_sizes import take_as_equal

    try:
        return func(*args, **kwargs)
    except (RuntimeError, ValueError) as error:
        found = _another_form(func, args, kwargs) if asks_for_a_size(error) else None
        if found is not None:
            return found
        if not several() and take_as_equal(func, args, kwargs, environment):
            return of_unknown_sizes(func, args, kwargs, environment)
        if not asks_for_a_size(error):
            raise
        raise CaptureError(
            f"{func} has no symbolic form for sizes that depend on values (of x[mask], nonzero() or the"
            " like)",
            KEEP_SIZE,
        ) from error


def _another_form(func, args, kwargs):
    from torch._decomp import decomposition_table

    from .results_from_examples import results_from_examples

    decomposition = decomposition_table.get(func)
    if decomposition is not None:
        try:
            return decomposition(*args, **kwargs)
        except RuntimeError as error:
            if not asks_for_a_size(error):
                raise
    return results_from_examples(func, args, kwargs)


def innermost(error):
    """Return the frame that raised the error."""
    traceback = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame


def asks_for_a_size(error) -> bool:
    """Return True if torch's error says that it needs the value of an unknown size."""
    message = str(error)
    if isinstance(error, TypeError):  # Python that wants an int: random.Random(n), {}[n]
        return "SymInt" in message or any(
            type(v) in SYMBOLIC_NUMBERS for v in innermost(error).f_locals.values()
        )
    if type(error).__name__ in ("GuardOnDataDependentSymNode", "UnsupportedOperatorException"):
        return True
    return any(
        said in message
        for said in (
            "symbolic sizes",
            "symbolic shapes",
            "isIntList",
            "concrete integers",
            "NO overloaded args",
            "no interpreter set",
        )
    )
