"""Statements that count: `variable += constant`, or `variable = variable + constant`.

Standard library only. Their read decides nothing but the new value of the variable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .bytecode import Instruction
from .instructions import COMMON_CONSTANTS, LAYOUT


@dataclass(frozen=True)
class Step:
    """What a counting statement does to its variable: `value -= 2` is Step(operator.sub, 2)."""

    function: Callable[[Any, Any], Any]
    operand: int | float


@dataclass(frozen=True)
class CountingStatement:
    """The store of a counting statement. The step is None if an operator may raise, as division does."""

    store: Instruction
    step: Step | None


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
    """Return the statement that counts, if the instruction reads its variable: constant, operator, store."""
    store = "STORE_SUBSCR" if is_subscript(instruction) else _STORES.get(instruction.name)
    if store is None or len(following) < 3 or following[0].name not in CONSTANTS:
        return None
    operation, rest = following[1], following[2:]
    if operation.name.startswith("INPLACE_") or operation.name == "BINARY_OP" and operation.arg in _INPLACE:
        rest = [each for each in rest if each.name not in ("SWAP", "ROT_TWO", "ROT_THREE")]
    elif operation.name.startswith("BINARY_") and not is_subscript(operation):
        rest = _after_owner(instruction, previous, rest)
    else:
        return None
    if not rest or rest[0].name != store or not _have_same_name(code, instruction, rest[0]):
        return None
    return CountingStatement(rest[0], _step(code, following[0], operation))


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


def _step(code: CodeType, constant: Instruction, operation: Instruction) -> Step | None:
    operand = CONSTANTS[constant.name](code, constant.arg)
    kind: str | int = operation.name
    if kind == "BINARY_OP":
        kind = operation.arg % _INPLACE.start
    function = _FUNCTIONS.get(kind)
    return Step(function, operand) if function is not None and type(operand) in (int, float) else None
