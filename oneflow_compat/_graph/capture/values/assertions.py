"""Checks of values in build(), such as `assert x.isfinite().all()`, become assertions of the program.

So does `if bad.any(): raise ValueError(...)`. The branch that does not raise is recorded, and the condition
is tested in every call.
"""

import dis
import sys
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
    value = (
        None if frame is None else _goes_on(nearest_frame.f_code, nearest_frame.f_lasti)
    )  # torch's own check, as of clip_grad_norm_(error_if_nonfinite=True)
    if value is None and frame is not None and frame is not nearest_frame:
        value = _goes_on(frame.f_code, frame.f_lasti)
    if value is None:
        return None
    check_location = (
        location_text((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        .replace('"', "'")
        .replace("\\", "/")
    )  # inductor writes it into C++
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
    if any(i.opname in _CATCHES for i in instructions):
        return None
    positions = {i.offset: n for n, i in enumerate(instructions)}
    n = positions.get(offset)
    if n is None:
        return None
    while instructions[n].opname in (
        "TO_BOOL",
        "CACHE",
        "COPY",
        "COMPARE_OP",
    ):  # a comparison that makes a bool of its result: Python 3.13
        n += 1
    jump = instructions[n]
    if not jump.opname.startswith("POP_JUMP") or not jump.opname.endswith(("IF_TRUE", "IF_FALSE")):
        return None
    by_jump, by_falling = _raises(instructions, positions.get(jump.argval)), _raises(instructions, n + 1)
    if by_jump == by_falling:
        return None
    jumps_if = jump.opname.endswith("IF_TRUE")
    return not jumps_if if by_jump else jumps_if


def _raises(instructions: Any, n: Any) -> Any:
    if n is None:
        return False
    for instruction in instructions[n:]:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if any(word in instruction.opname for word in _LEAVES):
            return False
    return False
