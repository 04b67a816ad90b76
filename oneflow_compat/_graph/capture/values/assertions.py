"""Checks of values in build(), such as `assert x.isfinite().all()`, become assertions of the program.

So does `if bad.any(): raise ValueError(...)`. The branch that does not raise is recorded, and the condition
is tested in every call.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from types import CodeType
from typing import Any

import torch

from ...errors import is_internal, is_of_this_package, location_text

aten = torch.ops.aten
_LEAVES = ("RETURN", "JUMP", "YIELD", "FOR_ITER", "SEND")
_CATCHES = ("CHECK_EXC_MATCH", "JUMP_IF_NOT_EXC_MATCH", "CHECK_EG_MATCH")


def assumed(recorder: Any, tensor: Any, node: Any) -> Any:
    """Return the truth value that a user's check requires of the tensor for build() to go on.

    Return None if the tensor is not tested by such a check.
    """
    frame = nearest_frame = _outside(sys._getframe(1), is_of_this_package)
    frame = _outside(frame, is_internal)
    # torch's own check, as of clip_grad_norm_(error_if_nonfinite=True)
    value = None if frame is None else _goes_on(nearest_frame.f_code, nearest_frame.f_lasti)
    if value is None and frame is not None and frame is not nearest_frame:
        value = _goes_on(frame.f_code, frame.f_lasti)
    if value is None:
        return None
    # inductor writes it into C++
    check_location = (
        location_text((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        .replace('"', "'")
        .replace("\\", "/")
    )
    tested = node if value else recorder.graph.call_function(aten.logical_not.default, (node,))
    tested.meta.setdefault("tensor", node.meta["tensor"])
    check = recorder.graph.call_function(
        aten._assert_async.msg, (tested, f"a check in build() failed: {check_location}")
    )
    recorder._annotate(tested)
    recorder._annotate(check)
    check.meta["tensor"] = None
    return value


def _outside(frame: Any, skipped: Any) -> Any:
    while frame is not None and skipped(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _goes_on(code: Any, offset: Any) -> Any:
    """Return the truth value with which the code at `offset` goes on, or None.

    There is such a value only if the opposite value leads straight to `raise`. The code may be an
    instrumented copy (observe/instrumentation/): its hooks add instructions, but no jump and no `raise`.
    """
    instructions = list(dis.get_instructions(code))
    positions = {i.offset: n for n, i in enumerate(instructions)}
    n = positions.get(offset)
    if n is None:
        return None
    # a comparison that makes a bool of its result: Python 3.13
    while instructions[n].opname in ("TO_BOOL", "CACHE", "COPY", "COMPARE_OP"):
        n += 1
    jump = instructions[n]
    if not jump.opname.startswith("POP_JUMP") or not jump.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    by_jump = _raise_after(instructions, positions.get(jump.argval))
    by_falling = _raise_after(instructions, n + 1)
    if (by_jump is None) == (by_falling is None) or _may_catch(code, instructions, by_jump or by_falling):
        return None
    jumps_if = jump.opname.endswith("IF_TRUE")
    return jumps_if if by_jump is None else not jumps_if


def _raise_after(instructions: Sequence[dis.Instruction], n: int | None) -> dis.Instruction | None:
    """Return the `raise` that the code reaches from its n-th instruction without a jump, or None."""
    for instruction in () if n is None else instructions[n:]:
        if instruction.opname == "RAISE_VARARGS":
            return instruction
        if any(word in instruction.opname for word in _LEAVES):
            return None
    return None


def _may_catch(
    code: CodeType, instructions: Sequence[dis.Instruction], raising: dis.Instruction | None
) -> bool:
    """Whether a handler of the same function may catch what the instruction raises.

    Python 3.10 has no table that tells which instructions a handler protects.
    """
    if raising is None or not any(i.opname in _CATCHES for i in instructions):
        return False
    entries = getattr(dis.Bytecode(code), "exception_entries", None)
    return entries is None or any(entry.start <= raising.offset < entry.end for entry in entries)
