"""Instrumented copies of code objects: a call of a hook before each instruction that reads.

Standard library only. A hook gets the operands of the instruction and its `Site`.
"""

from __future__ import annotations

import dis
import linecache
import types
from types import CodeType
from typing import Any

from .bytecode import VERSION, Instruction, Position, decode, rebuild
from .counting import CONSTANTS, CountingOperation, counting_statement, index_of_name, is_subscript
from .instructions import (
    COMMON_CONSTANTS,
    CONTENTS_OF_TOP,
    COUNTED,
    ITEM,
    LAYOUT,
    MAKES_BOOL,
    READS,
    TRUTH_OF_TOP,
    Read,
)

_LONGEST_STATEMENT = 24  # instructions of a statement that counts
_LOAD_CELL = "LOAD_CLOSURE" if dis.opmap.get("LOAD_CLOSURE", 256) < 256 else "LOAD_FAST"


class Site:
    """An instruction of the user's program: where it is, and the name that it reads.

    `counts` is True for the read and the store of `variable += number`, which decide nothing. The read of
    most such statements has a `step`.
    """

    __slots__ = ("code", "counts", "is_user", "name", "position", "step")

    def __init__(
        self,
        code: CodeType,
        name: str | None,
        position: Position | None,
        is_user: bool,
        counts: bool = False,
        step: CountingOperation | None = None,
    ) -> None:
        self.code, self.name, self.position, self.is_user = code, name, position, is_user
        self.counts, self.step = counts, step

    @property
    def code_location(self) -> tuple[str, int, str]:
        """(file, line, function)."""
        line = self.position[0] if self.position else None
        return self.code.co_filename, line or self.code.co_firstlineno, self.code.co_name

    @property
    def expression(self) -> str:
        """The source text of the instruction, or the name that it reads."""
        line, end_line, column, end_column = self.position or (None, None, None, None)
        if line is not None and column is not None and line == end_line:
            code = linecache.getline(self.code.co_filename, line).encode()
            expression = code[column:end_column].decode(errors="replace")
            if expression:
                return expression
        return self.name or self.code.co_name


def instrument(code: CodeType, hooks: Any, is_user: bool) -> types.CodeType:
    """Return a copy of the code that calls `hooks[name](*operands, site)` before each read.

    In code of installed packages (`is_user` is False) reads of globals are left out.
    """
    instructions, starts = decode(code)
    constants, output, heads = list(code.co_consts), [], {}
    builder = _Builder(code, hooks, is_user, constants)
    for index, instruction in enumerate(instructions):
        previous = instructions[index - 1] if index else None
        group = builder.group(instruction, previous, instructions[index + 1 : index + _LONGEST_STATEMENT])
        for added in group:
            if added.position is None:
                added.position = instruction.position
        heads[id(instruction)] = group[0]
        output += group
    for instruction in output:
        if instruction.target is not None:
            instruction.target = heads[id(instruction.target)]
    starts = {offset: heads[id(instruction)] for offset, instruction in starts.items()}
    return rebuild(code, output, starts, constants, builder.extra_stack)


class _Builder:
    def __init__(self, code: CodeType, hooks: Any, is_user: bool, constants: Any) -> None:
        self.code, self.hooks, self.is_user, self.constants = code, hooks, is_user, constants
        self.indices: dict[Any, Any] = {}
        self.extra_stack = 4
        self.cells = code.co_cellvars + code.co_freevars
        self.counting_stores: set[int] = set()  # ids of instructions
        self.counting_operations: dict[int, Site] = {}  # id of an operator -> the read of its statement

    def group(
        self, instruction: Instruction, before: Instruction | None, following: Any
    ) -> list[Instruction]:
        """Return the instruction with its hook before it."""
        name, previous = instruction.name, before.name if before is not None else ""
        if (name == "KW_NAMES" or name == "PRECALL" and previous != "KW_NAMES") and following:
            return [*self._call_hook(following[0]), instruction]  # before 3.13 they come before the call
        read = ITEM if is_subscript(instruction) else READS.get(name)
        if read is None or read.of_globals and not self.is_user or self._has_no_hook(instruction, before):
            return [instruction]
        if read.hook in ("call", "call_unpacked"):
            return [*self._call_hook(instruction, previous), *_without_method(instruction)]
        if read in (CONTENTS_OF_TOP, TRUTH_OF_TOP) and self._tests_nothing(name, instruction, previous):
            return [instruction]
        return self._read_group(instruction, read, self._site(instruction, before, following))

    def _read_group(self, instruction: Instruction, read: Read, site: Site) -> list[Instruction]:
        """The hook of a read of operands, or of a variable, before its instruction."""
        counting = self.counting_operations.get(id(instruction))
        if counting is not None:
            counted = self._hook(COUNTED.hook, COUNTED.operands, counting)
            return [*counted, *self._hook(read.hook, read.operands, site), instruction]
        if instruction.name in ("LOAD_DEREF", "STORE_DEREF"):
            return self._cell_group(instruction, read.hook, site)
        return [*self._hook(read.hook, read.operands, site), *_without_method(instruction)]

    @staticmethod
    def _has_no_hook(instruction: Instruction, before: Instruction | None) -> bool:
        """Whether the instruction before has the hook of this call, or the compiler put in the comparison."""
        if instruction.name == "CALL":
            return (
                before is not None
                and before.name in ("PRECALL", "KW_NAMES")
                or _is_of_with(instruction, before)
            )
        return instruction.name == "IS_OP" and _is_question_of_compiler(before)

    @staticmethod
    def _tests_nothing(name: str, instruction: Instruction, previous: Any) -> bool:
        """Whether a truth test follows a comparison, or FORMAT_VALUE has its operand below a format."""
        if name == "FORMAT_VALUE":
            return bool(instruction.arg & 4)
        return previous in MAKES_BOOL and ("JUMP" in name or name in ("TO_BOOL", "UNARY_NOT"))

    def _cell_group(self, instruction: Instruction, hook: str, site: Site) -> list[Any]:
        if site.name not in self.code.co_freevars:
            return [instruction]
        load = Instruction(_LOAD_CELL, instruction.arg)
        return [*self._hook(hook, (), site, load), instruction]

    def _name_of_cell(self, arg: int) -> str:
        if VERSION < (3, 11):
            return self.cells[arg]
        name: str = getattr(self.code, "_varname_from_oparg")(arg)  # noqa: B009 -- of Python 3.11 and later
        return name

    def _call_hook(self, call: Any, previous: str = "") -> Any:
        """The hook of a call: the callable, then its arguments. `previous` is the instruction before it."""
        name, count = call.name, call.arg
        site = self._site(call)
        if name == "CALL_FUNCTION_EX":
            if LAYOUT.has_null_keywords:
                return self._hook("call_unpacked", (4, 2) if previous == "PUSH_NULL" else (4, 2, 1), site)
            keywords = count & 1
            depth = 2 + keywords + LAYOUT.callable_first
            return self._hook("call_unpacked", (depth, *range(1 + keywords, 0, -1)), site)
        below = 1 if name in ("CALL_KW", "CALL_FUNCTION_KW") else 0  # the names of keywords
        depth = below + count + (2 if LAYOUT.callable_first else 1)  # of the callable on the stack
        hook = self._hook("call", (depth, *range(below + count, below, -1)), site)
        if LAYOUT.has_copy:  # what the hook returns is called
            hook.insert(-1, Instruction("SWAP", depth + 1))
        return hook

    def _hook(self, hook: Any, operands: Any, site: Any, load: Any = None) -> Any:
        if not LAYOUT.has_copy:
            return self._hook_310(hook, operands, site, load)
        function = self._constant(self.hooks[hook])
        null = Instruction("PUSH_NULL")
        start = [function, null] if LAYOUT.callable_first else [null, function]
        copies = [Instruction("COPY", depth + 2 + count) for count, depth in enumerate(operands)]
        arguments = [*copies, *([load] if load is not None else []), self._constant(site)]
        self.extra_stack = max(self.extra_stack, len(arguments) + 3)
        call = [Instruction("CALL", len(arguments))]
        if LAYOUT.has_precall:
            call.insert(0, Instruction("PRECALL", len(arguments)))
        return [*start, *arguments, *call, Instruction("POP_TOP")]

    def _hook_310(self, hook: Any, operands: Any, site: Any, load: Any) -> list[Any]:
        """Without COPY: the top one or two are duplicated; more go through a tuple and back."""
        function, end = self._constant(self.hooks[hook]), [self._constant(site)]
        if load is not None:
            return [function, load, *end, Instruction("CALL_FUNCTION", 2), Instruction("POP_TOP")]
        if not operands:
            return [function, *end, Instruction("CALL_FUNCTION", 1), Instruction("POP_TOP")]
        if operands == (1,):
            start = [Instruction("DUP_TOP"), function, Instruction("ROT_TWO")]
            return [*start, *end, Instruction("CALL_FUNCTION", 2), Instruction("POP_TOP")]
        depth = max(operands)
        self.extra_stack = max(self.extra_stack, depth + 4)
        chosen = self._constant(tuple(depth - operand for operand in operands))
        pick = self._constant(self.hooks[f"{hook}_of_tuple"])
        gathered = [Instruction("BUILD_TUPLE", depth), Instruction("DUP_TOP"), pick, Instruction("ROT_TWO")]
        back = [Instruction("UNPACK_SEQUENCE", depth), Instruction("BUILD_TUPLE", depth)]
        called = [chosen, *end, Instruction("CALL_FUNCTION", 3), Instruction("POP_TOP")]
        return [*gathered, *called, *back, Instruction("UNPACK_SEQUENCE", depth)]

    def _constant(self, value: Any) -> Any:
        index = self.indices.get(id(value))
        if index is None:
            index = self.indices[id(value)] = len(self.constants)
            self.constants.append(value)
        return Instruction("LOAD_CONST", index)

    def _site(self, instruction: Instruction, before: Instruction | None = None, following: Any = ()) -> Site:
        statement = counting_statement(self.code, instruction, before, following)
        if statement is not None:
            self.counting_stores.add(id(statement.store))
        counts = statement is not None or id(instruction) in self.counting_stores
        step = statement.step if statement is not None else None
        name = self._name(instruction)
        site = Site(self.code, name, instruction.position, self.is_user, counts, step)
        if statement is not None and statement.operation is not None:
            self.counting_operations[id(statement.operation)] = site
        return site

    def _name(self, instruction: Instruction) -> Any:
        name = instruction.name
        if name in ("LOAD_DEREF", "STORE_DEREF"):
            return self._name_of_cell(instruction.arg)
        named = ("GLOBAL", "NAME", "_ATTR", "LOAD_METHOD", "IMPORT_FROM", "IMPORT_NAME")
        is_named = any(part in name for part in named) and "KW" not in name
        return self.code.co_names[index_of_name(instruction)] if is_named else None


def _is_question_of_compiler(before: Instruction | None) -> bool:
    """Whether the operand of a comparison by identity is the builtin that a global name may mean: `all`."""
    is_common = before is not None and before.name == "LOAD_COMMON_CONSTANT"
    return before is not None and is_common and callable(COMMON_CONSTANTS[before.arg])


def _is_of_with(call: Instruction, before: Instruction | None) -> bool:
    """Whether a call of `with` enters or leaves the context, from 3.14 on. LOAD_SPECIAL has read the object.

    `__exit__` gets three times None from instructions that have the place of the call itself.
    """
    if before is None or before.name == "LOAD_SPECIAL":
        return before is not None
    has_columns = call.position is not None and call.position[2] is not None
    is_exit = "LOAD_SPECIAL" in dis.opmap and before.name in CONSTANTS and call.arg == 3
    return is_exit and has_columns and before.position == call.position


def _without_method(instruction: Instruction) -> list[Any]:
    """The instruction; one that loads a method loads a bound method, which the hook of a call can look at."""
    name = instruction.name
    if name == "LOAD_METHOD":
        instruction.opcode = Instruction("LOAD_ATTR").opcode
        if not LAYOUT.has_copy:
            return [instruction]
        return [instruction, Instruction("PUSH_NULL"), Instruction("SWAP", 2)]
    if name == "CALL_METHOD":
        instruction.opcode = Instruction("CALL_FUNCTION").opcode
        return [instruction]
    if LAYOUT.attribute_flags and name in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and instruction.arg & 1:
        instruction.arg &= ~1
        null = [Instruction("PUSH_NULL")]
        return [instruction, *null] if LAYOUT.callable_first else [instruction, *null, Instruction("SWAP", 2)]
    return [instruction]
