"""torch's symbolic shapes, with an answer to each branch on a size that depends on values.

Only a capture with symbols imports this module, because torch's symbolic shapes import sympy.
"""

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import sympy
import torch
from torch.fx.experimental import sym_node, symbolic_shapes
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv, statically_known_true
from torch.utils._sympy.functions import FloorDiv

from ...._global.marks import several
from ...code_origins import is_internal
from ...errors import note_error, user_location
from ...program.symbolic import SYMBOLIC_NUMBERS

_CONVERSIONS = {"__bool__", "__int__", "__index__", "__float__"}
_FILES_OF_CHECKS = frozenset([__file__, torch.__file__, symbolic_shapes.__file__, sym_node.__file__])
_LARGE = sympy.Integer(2) ** 60


class SizeEnvironment(ShapeEnv):
    """Symbolic shapes of one capture.

    If torch itself asks whether there are no elements, its general branch is recorded, which also serves an
    empty tensor. A branch of the user is recorded with an assertion.
    """

    def __init__(self, branch: Callable[..., bool], **options: Any) -> None:
        super().__init__(**options)
        self.branch: Callable[..., bool] | None = branch  # None after the capture
        # symbol of a dimension -> (line that first needed its number, whether a comparison fixed it)
        self.asked_at: dict[Any, Any] = {}

    def end_capture(self) -> None:
        """Let go of the recorder, which refers to the model.

        torch's caches of symbolic shapes (2.13) keep an environment alive for the rest of the process.
        """
        self.branch = None

    def evaluate_sym_node(
        self, sym_node: Any, size_oblivious: bool = False, fallback_value: Any = None
    ) -> Any:
        guards = len(self.guards)
        try:
            result = super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
            if len(self.guards) > guards:
                self._note_location(self.guards[-1].expr, sym_node.pytype is bool)
            return result
        except GuardOnDataDependentSymNode as error:
            # for an integer, torch would answer with the smallest value, so raise instead
            branch = self.branch
            if branch is None or size_oblivious or sym_node.pytype is not bool:
                note_error(error)
                raise
            frame, is_of_layer = _asking_frame()
            if frame is None:
                return self._answer_torch(sym_node, fallback_value)
            if several():  # ranks that take different branches would wait for each other
                raise
        return self._answer_user(branch, sym_node, fallback_value, frame, is_of_layer)

    def guard_or_defer_runtime_assert(  # type: ignore[override]  # torch caches the answers
        self, orig_expr: Any, msg: str, fx_node: Any = None
    ) -> bool:
        """Record torch._check() of user code as a branch, because torch defers it to a compiler.

        Functions of torch check their own arguments, and so do their kernels in each run.
        """
        frame, branch = _checking_frame(), self.branch
        condition = torch.SymBool(SymNode(orig_expr, self, bool, None))
        is_decided = any(map(statically_known_true, (condition, torch.sym_not(condition))))
        if frame is not None and branch is not None and not is_decided and not several():
            code = frame.f_code
            if not branch(condition, True, (code.co_filename, frame.f_lineno, code.co_name)):
                return False
        holds: bool = super().guard_or_defer_runtime_assert(orig_expr, msg, fx_node)
        return holds

    def _answer_torch(self, sym_node: Any, fallback_value: Any) -> Any:
        """Answer a question of torch itself as for sizes that are large, or raise."""
        try:
            return super().evaluate_sym_node(sym_node, True, fallback_value)
        except GuardOnDataDependentSymNode:
            if not _is_of_sizes(sym_node.expr, self.size_like):
                raise
            return sym_node.expr.xreplace(dict.fromkeys(sym_node.expr.free_symbols, _LARGE))

    def _answer_user(
        self,
        branch: Callable[..., bool],
        sym_node: Any,
        fallback_value: Any,
        frame: FrameType,
        is_of_layer: bool,
    ) -> Any:
        """Record the branch of user code, or of a layer of torch.nn."""
        try:
            likely = super().evaluate_sym_node(sym_node, True, fallback_value)
        except GuardOnDataDependentSymNode:
            likely = is_of_layer and isinstance(sym_node.expr, sympy.Eq)  # shapes are likely to fit
        code = frame.f_code
        location = user_location() if is_of_layer else (code.co_filename, frame.f_lineno, code.co_name)
        return sympy.true if branch(torch.SymBool(sym_node), likely, location) else sympy.false

    def _note_location(self, guard: Any, is_compared: bool) -> None:
        for symbol in guard.free_symbols:
            if isinstance(guard, sympy.Eq) and symbol not in self.asked_at:
                if self.simplify(symbol).is_number:
                    self.asked_at[symbol] = user_location(), is_compared


def _is_of_sizes(condition: Any, sizes: Any) -> bool:
    """Return True for a comparison of 0 or 1 with quotients and multiples of sizes.

    A view's -1 gives such a quotient (u0 // 4). Torch itself decides comparisons of sizes alone.
    """
    if not isinstance(condition, sympy.core.relational.Relational):
        return False
    computed, constant = condition.args if condition.rhs.is_number else condition.args[::-1]
    return constant in (0, 1) and all(
        term in sizes or term.is_Integer and term > 0 or isinstance(term, (FloorDiv, sympy.Mul))
        for term in sympy.preorder_traversal(computed)
    )


def _asking_frame() -> tuple[FrameType | None, bool]:
    """Return (frame, whether it is of torch.nn) that makes a size a Python value, as an `if` does.

    The frame is of torch.nn, or of user code; else the result is (None, False).
    """
    frame: FrameType = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        if not _converts_a_size(frame) or caller.f_code.co_name in _CONVERSIONS and _same_file(frame, caller):
            frame = caller  # `if n` asks for n != 0
            continue
        is_of_layer = caller.f_code.co_filename.startswith(os.path.dirname(torch.nn.__file__))
        return (caller, is_of_layer) if is_of_layer or _is_of_user(caller) else (None, False)
    return None, False


def _checking_frame() -> FrameType | None:
    """Return the frame of user code that calls torch._check() or a relative of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _FILES_OF_CHECKS:
        frame = frame.f_back
    return frame if frame is not None and _is_of_user(frame) else None


def _is_of_user(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<") or not is_internal(name)  # "<...": a prompt, exec()


def _converts_a_size(frame: FrameType) -> bool:
    if frame.f_code.co_name not in _CONVERSIONS:
        return False
    return isinstance(frame.f_locals.get("self"), tuple(SYMBOLIC_NUMBERS))


def _same_file(frame: FrameType, caller: FrameType) -> bool:
    return caller.f_code.co_filename == frame.f_code.co_filename
