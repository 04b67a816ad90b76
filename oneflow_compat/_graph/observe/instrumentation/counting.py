"""Statements that count: `variable += expression`, or `variable = variable + constant`.

Standard library only. Their read decides nothing but the new value of the variable.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .bytecode import Instruction
from .instructions import COMMON_CONSTANTS, LAYOUT


@dataclass(frozen=True)
class CountingOperation:
    """What a counting statement does to its variable: `value -= 2` is CountingOperation(operator.sub, 2).

    The operand of `value -= expression` is None until it is computed.
    """

    function: Callable[[Any, Any], Any]
    operand: int | float | None


@dataclass(frozen=True)
class CountingStatement:
    """The store of a counting statement. The step is None if an operator may raise, as division does.

    `operation` is the operator of a step whose operand is computed.
    """

    store: Instruction
    step: CountingOperation | None
    operation: Instruction | None = None


_STORES = {
    "LOAD_ATTR": "STORE_ATTR",
    "LOAD_GLOBAL": "STORE_GLOBAL",
    "LOAD_DEREF": "STORE_DEREF",
}
_INPLACE = range(13, 26)  # the operators of BINARY_OP that are in place
_FUNCTIONS: dict[str | int, Callable[[Any, Any], Any]] = {
    "INPLACE_ADD": operator.add,
    "INPLACE_SUBTRACT": operator.sub,
    "INPLACE_MULTIPLY": operator.mul,
    "BINARY_ADD": operator.add,
    "BINARY_SUBTRACT": operator.sub,
    "BINARY_MULTIPLY": operator.mul,
    0: operator.add,
    5: operator.mul,
    10: operator.sub,
}


# instruction that loads a constant -> function from the code and its argument to the constant
CONSTANTS: dict[str, Callable[[CodeType, int], Any]] = {
    "LOAD_CONST": lambda code, arg: code.co_consts[arg],
    "LOAD_SMALL_INT": lambda code, arg: arg,
    "LOAD_COMMON_CONSTANT": lambda code, arg: COMMON_CONSTANTS[arg],
}


def is_subscript(instruction: Instruction) -> bool:
    """Whether an instruction reads container[key]."""
    name = instruction.name
    return name == "BINARY_SUBSCR" or name == "BINARY_OP" and instruction.arg == LAYOUT.subscript


def counting_statement(
    code: CodeType, instruction: Instruction, previous: Instruction | None, following: Sequence[Instruction]
) -> CountingStatement | None:
    """Return the statement that counts, if the instruction reads its variable: operand, operator, store."""
    store = "STORE_SUBSCR" if is_subscript(instruction) else _STORES.get(instruction.name)
    if store is None:
        return None
    length = _length_of_operand(following)
    if length is None or len(following) < length + 2:
        return None
    operation, rest = following[length], following[length + 1 :]
    is_constant = length == 1 and following[0].name in CONSTANTS
    if _is_in_place(operation):
        rest = [each for each in rest[:3] if each.name not in ("SWAP", "ROT_TWO", "ROT_THREE")]
    elif is_constant and operation.name.startswith("BINARY_") and not is_subscript(operation):
        rest = _after_owner(instruction, previous, rest)
    else:
        return None
    if not rest or rest[0].name != store or not _have_same_name(code, instruction, rest[0]):
        return None
    if is_constant:
        return CountingStatement(rest[0], _step(code, following[0], operation))
    return _statement_by_operand(rest[0], operation)


def _statement_by_operand(store: Instruction, operation: Instruction) -> CountingStatement | None:
    """Return the statement whose operand is known when it runs: `total += loss.item()`."""
    function = _function_of(operation)
    return (
        None if function is None else CountingStatement(store, CountingOperation(function, None), operation)
    )


# Instructions of an operand that leave what lies below it on the stack alone, and do not jump.
_OF_OPERANDS = frozenset(
    """
    BINARY_OP BINARY_SLICE BINARY_SUBSCR CALL CALL_FUNCTION CALL_METHOD KW_NAMES LOAD_ATTR LOAD_CONST
    LOAD_COMMON_CONSTANT LOAD_DEREF LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW
    LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD LOAD_SMALL_INT PRECALL PUSH_NULL UNARY_NEGATIVE
    BINARY_ADD BINARY_FLOOR_DIVIDE BINARY_MULTIPLY BINARY_SUBTRACT
    """.split()
)


def _length_of_operand(following: Sequence[Instruction]) -> int | None:
    """Return the number of instructions that compute the second operand of an operator, or None.

    The first operand lies on the stack already.
    """
    depth = 0  # of the stack above the first operand
    for index, instruction in enumerate(following):
        is_operator = instruction.name.startswith(("INPLACE_", "BINARY_")) and not is_subscript(instruction)
        if is_operator and depth == 1:
            return index
        if instruction.name not in _OF_OPERANDS:
            return None
        depth += dis.stack_effect(instruction.opcode, instruction.arg if _has_argument(instruction) else None)
        if depth < 1:
            return None
    return None


def _has_argument(instruction: Instruction) -> bool:
    return instruction.opcode >= dis.HAVE_ARGUMENT


def _is_in_place(operation: Instruction) -> bool:
    return (
        operation.name.startswith("INPLACE_") or operation.name == "BINARY_OP" and operation.arg in _INPLACE
    )


def _after_owner(
    instruction: Instruction, previous: Instruction | None, rest: Sequence[Instruction]
) -> Sequence[Instruction]:
    """Skip the local variable of the owner, which is loaded again: `self.n = self.n + 1`."""
    if is_subscript(instruction):
        return ()
    if instruction.name != "LOAD_ATTR":
        return rest
    is_same = previous is not None and (previous.name, previous.arg) == (rest[0].name, rest[0].arg)
    return rest[1:] if is_same and rest[0].name.startswith("LOAD_FAST") else ()


def _have_same_name(code: CodeType, load: Instruction, store: Instruction) -> bool:
    if is_subscript(load):  # the statement is in place, so that it stores where it reads
        return True
    if load.name == "LOAD_DEREF":
        return bool(load.arg == store.arg)
    return bool(code.co_names[index_of_name(load)] == code.co_names[store.arg])


def index_of_name(load: Instruction) -> int:
    """Return the index of the name that an instruction loads. The lowest bits of some arguments are flags."""
    flags = {
        "LOAD_GLOBAL": LAYOUT.global_flags,
        "LOAD_ATTR": LAYOUT.attribute_flags,
        "IMPORT_NAME": LAYOUT.import_flags,
        "LOAD_SUPER_ATTR": 2,
    }
    return int(load.arg) >> flags.get(load.name, 0)


def _step(code: CodeType, constant: Instruction, operation: Instruction) -> CountingOperation | None:
    operand = CONSTANTS[constant.name](code, constant.arg)
    function = _function_of(operation)
    return (
        CountingOperation(function, operand)
        if function is not None and type(operand) in (int, float)
        else None
    )


def _function_of(operation: Instruction) -> Callable[[Any, Any], Any] | None:
    kind: str | int = operation.name
    if kind == "BINARY_OP":
        kind = operation.arg % _INPLACE.start
    return _FUNCTIONS.get(kind)
