"""Checks of values in build(), such as `assert x.isfinite().all()`, become assertions of the program.

So does `if bad.any(): raise ValueError(...)`. The branch that does not raise is recorded, and the condition
is tested in every call.
"""

from __future__ import annotations

import builtins
import dis
import opcode
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from ...code_origins import is_internal, is_of_this_package
from ...errors import location_text
from ...program.checks import check_message

aten = torch.ops.aten
_LEAVES = ("RETURN", "JUMP", "YIELD", "FOR_ITER", "SEND")
_CALLS = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
_CATCHES = ("CHECK_EXC_MATCH", "JUMP_IF_NOT_EXC_MATCH", "CHECK_EG_MATCH")


class _Check(NamedTuple):
    """A branch whose other outcome raises an error."""

    goes_on: bool  # the truth value with which the code goes on
    error_class: type[Exception] | None  # class of the error, if its name is found


def assumed(recorder: Any, tensor: Any, node: Any) -> Any:
    """Return the truth value that a user's check requires of the tensor for build() to go on.

    Return None if the tensor is not tested by such a check.
    """
    frame = nearest_frame = _outside(sys._getframe(1), is_of_this_package)
    frame = _outside(frame, is_internal)
    # torch's own check, as of clip_grad_norm_(error_if_nonfinite=True)
    is_bool = tensor.dtype is torch.bool
    check = None if frame is None else _check_in(nearest_frame, is_bool)
    if check is None and frame is not None and frame is not nearest_frame:
        check = _check_in(frame, is_bool)
    if check is None:
        return None
    # inductor writes it into C++
    check_location = (
        location_text((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        .replace('"', "'")
        .replace("\\", "/")
    )
    tested = node if check.goes_on else recorder.graph.call_function(aten.logical_not.default, (node,))
    tested.meta.setdefault("tensor", node.meta["tensor"])
    assertion = recorder.graph.call_function(
        aten._assert_async.msg, (tested, check_message(check_location, check.error_class))
    )
    recorder._annotate(tested)
    recorder._annotate(assertion)
    assertion.meta["tensor"] = None
    return check.goes_on


def _outside(frame: Any, skipped: Any) -> Any:
    while frame is not None and skipped(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _check_in(frame: FrameType | None, is_bool: bool) -> _Check | None:
    """Return the check that a frame makes at its present instruction, or None.

    It is a check only if one of the two truth values leads straight to `raise`. The code may be an
    instrumented copy (observe/instrumentation/): its hooks add instructions, but no jump and no `raise`.
    `is_bool`: the present call gives a bool, as bool(x.all()) does. A function may return it to a frame that
    makes the check:

        def is_valid(x): return bool(x.all())
        if not is_valid(x): raise ValueError
    """
    if frame is None:
        return None
    code = frame.f_code
    instructions = list(dis.get_instructions(code))
    positions = {i.offset: n for n, i in enumerate(instructions)}
    n = positions.get(frame.f_lasti)
    if n is None:
        return None
    if instructions[n].opname == "PRECALL":  # Python 3.11 calls some functions in C here, once it is warm
        n += 1
    if is_bool and instructions[n].opname in _CALLS:
        n = _after_hooks(instructions, n + 1)
        if instructions[n].opname == "RETURN_VALUE":
            return _check_in(frame.f_back, is_bool)
    # a comparison that makes a bool of its result: Python 3.13; a jump over much code has a prefix
    while instructions[n].opname in ("TO_BOOL", "CACHE", "COPY", "COMPARE_OP", "EXTENDED_ARG"):
        n += 1
    jump = instructions[n]
    if not jump.opname.startswith("POP_JUMP") or not jump.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    by_jump = _path_to_raise(instructions, positions.get(jump.argval))
    by_falling = _path_to_raise(instructions, n + 1)
    path = by_jump or by_falling
    if (not by_jump) == (not by_falling) or _may_catch(code, instructions, path[-1]):
        return None
    jumps_if = jump.opname.endswith("IF_TRUE")
    return _Check(not jumps_if if by_jump else jumps_if, _raised_class(path, frame))


def _after_hooks(instructions: Sequence[dis.Instruction], n: int) -> int:
    """Return the position after the calls of hooks. A hook is a constant of an instrumented copy, and the
    result of its call is dropped. Other code has no functions among its constants.
    """
    calls_hook = False
    for m in range(n, len(instructions)):
        name, value = instructions[m].opname, instructions[m].argval
        if any(word in name for word in _LEAVES):
            break
        calls_hook = calls_hook or name == "LOAD_CONST" and callable(value)
        if calls_hook and name == "POP_TOP":
            return _after_hooks(instructions, m + 1)
    return n


def _path_to_raise(instructions: Sequence[dis.Instruction], n: int | None) -> Sequence[dis.Instruction]:
    """Return the instructions from the n-th to the `raise` that they reach without a jump, or none."""
    for m in range(len(instructions) if n is None else n, len(instructions)):
        name = instructions[m].opname
        if name == "RAISE_VARARGS":
            return instructions[n : m + 1]
        if any(word in name for word in _LEAVES):
            break
    return ()


def _raised_class(path: Iterable[dis.Instruction], frame: FrameType) -> type[Exception] | None:
    """Return the first class of errors that the instructions before a `raise` name, or None."""
    for instruction in path:
        if instruction.opname == "LOAD_ASSERTION_ERROR":
            return AssertionError
        named: Any = None
        if instruction.opname == "LOAD_COMMON_CONSTANT":
            named = getattr(opcode, "_common_constants")[instruction.arg]  # noqa: B009 -- of 3.14 and later
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            named = frame.f_globals.get(instruction.argval, vars(builtins).get(instruction.argval))
        if isinstance(named, type) and issubclass(named, Exception):
            return named
    return None


def _may_catch(code: CodeType, instructions: Sequence[dis.Instruction], raising: dis.Instruction) -> bool:
    """Whether a handler of the same function may catch what the instruction raises.

    Python 3.10 has no table that tells which instructions a handler protects.
    """
    if not any(i.opname in _CATCHES for i in instructions):
        return False
    entries = getattr(dis.Bytecode(code), "exception_entries", None)
    return entries is None or any(entry.start <= raising.offset < entry.end for entry in entries)
