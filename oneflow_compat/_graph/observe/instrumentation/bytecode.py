"""Insert instructions into a code object: decode, edit, assemble.

Standard library only, so that each Python version tests it without torch. Jumps, the exception table and the
line table follow the instructions that they belong to.
"""

from __future__ import annotations

import dis
import opcode
import sys
import types
from collections.abc import Sequence
from types import CodeType
from typing import Any

VERSION = sys.version_info[:2]
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_ABSOLUTE = frozenset(dis.hasjabs)


def _cache_sizes() -> dict[Any, Any]:
    """Return {opcode: inline cache entries that follow it}."""
    entries = getattr(opcode, "_inline_cache_entries", None)
    if entries is None:
        return {}
    if hasattr(entries, "items"):  # from 3.13 on by name; a frozendict in 3.15
        return {dis.opmap[name]: size for name, size in entries.items() if name in dis.opmap}
    return {code: size for code, size in enumerate(entries) if size}


_CACHES = _cache_sizes()
_CACHE = dis.opmap.get("CACHE")
# END_ASYNC_FOR jumps from 3.14 on, where tools see the end of a loop
_BACKWARD = frozenset(
    code for name, code in dis.opmap.items() if "JUMP_BACKWARD" in name or name == "END_ASYNC_FOR"
)


# (line, end line, column, end column) of an instruction
Position = tuple[int | None, int | None, int | None, int | None]


class Instruction:
    """One instruction without its EXTENDED_ARG prefixes and inline caches.

    `target` is the instruction that a jump goes to; `position` is (line, end line, column, end column).
    """

    __slots__ = ("arg", "opcode", "position", "target")

    def __init__(self, name: Any, arg: Any = 0) -> None:
        self.opcode = name if isinstance(name, int) else dis.opmap[name]
        self.arg = arg
        self.target: Instruction | None = None
        self.position: Position | None = None

    @property
    def name(self) -> str:
        return dis.opname[self.opcode]

    def __repr__(self) -> str:
        return f"{self.name} {self.arg}"


def decode(code: Any) -> tuple[list[Instruction], dict[int, Instruction]]:
    """Return the instructions, and {offset: instruction that starts there}."""
    raw, instructions, starts = code.co_code, [], {}
    ends: dict[Any, Any] = {}
    offset, start, extended = 0, None, 0
    positions = _positions(code)
    while offset < len(raw):
        code_byte, arg = raw[offset], raw[offset + 1]
        start = offset if start is None else start
        offset += 2
        if code_byte == _EXTENDED_ARG:
            extended = (extended | arg) << 8
            continue
        instruction = Instruction(code_byte, arg | extended)
        instruction.position = positions.get(offset - 2)
        offset += 2 * _CACHES.get(code_byte, 0)
        starts[start], ends[id(instruction)] = instruction, offset
        instructions.append(instruction)
        start, extended = None, 0
    for instruction in instructions:
        if instruction.opcode in _JUMPS:
            instruction.target = starts[_jump_target(instruction, ends[id(instruction)])]
    return instructions, starts


def _jump_target(instruction: Instruction, end: Any) -> Any:
    if instruction.opcode in _ABSOLUTE:
        return 2 * instruction.arg
    return end + 2 * (-instruction.arg if instruction.opcode in _BACKWARD else instruction.arg)


def _positions(code: Any) -> dict[int, Position]:
    """Return {offset: (line, end line, column, end column)}."""
    if VERSION < (3, 11):
        return {
            offset: (line, line, None, None)
            for start, end, line in code.co_lines()
            for offset in range(start, end, 2)
        }
    return {2 * index: position for index, position in enumerate(code.co_positions())}


def rebuild(
    code: CodeType, instructions: Any, starts: Any, constants: Any, extra_stack: Any
) -> types.CodeType:
    """Return the code with other instructions.

    `starts` maps the offsets of the old code to instructions of the new list.
    """
    sizes, offsets = _laid_out(instructions)
    raw = bytearray()
    for instruction, size in zip(instructions, sizes):
        _write_instruction(raw, instruction, size)
    changes = {
        "co_code": bytes(raw),
        "co_consts": tuple(constants),
        "co_stacksize": code.co_stacksize + extra_stack,
        "co_linetable": _line_table(code, instructions, sizes),
    }
    if VERSION >= (3, 11):
        changes["co_exceptiontable"] = _exception_table(code, starts, offsets, len(raw))
    return code.replace(**changes)


def _laid_out(instructions: Any) -> Any:
    """Return the bytes of each instruction with prefixes and caches, and {id: offset}; set jump arguments."""
    prefixes = [_prefixes(i.arg) if i.target is None else 0 for i in instructions]
    while True:
        offset, offsets, sizes = 0, {}, []
        for instruction, prefix in zip(instructions, prefixes):
            offsets[id(instruction)] = offset
            sizes.append(2 * (prefix + 1 + _CACHES.get(instruction.opcode, 0)))
            offset += sizes[-1]
        grown = False
        for index, instruction in enumerate(instructions):
            if instruction.target is None:
                continue
            target = offsets[id(instruction.target)]
            end = offsets[id(instruction)] + sizes[index]
            distance = target if instruction.opcode in _ABSOLUTE else abs(target - end)
            instruction.arg = distance // 2
            if _prefixes(instruction.arg) > prefixes[index]:
                prefixes[index], grown = _prefixes(instruction.arg), True
        if not grown:
            return sizes, offsets


def _prefixes(arg: int) -> int:
    return 0 if arg < 1 << 8 else 1 if arg < 1 << 16 else 2 if arg < 1 << 24 else 3


def _write_instruction(raw: Any, instruction: Instruction, size: Any) -> None:
    caches = _CACHES.get(instruction.opcode, 0)
    for shift in range(size // 2 - 1 - caches, 0, -1):
        raw += bytes((_EXTENDED_ARG, (instruction.arg >> (8 * shift)) & 0xFF))
    raw += bytes((instruction.opcode, instruction.arg & 0xFF))
    raw += bytes((_CACHE or 0, 0)) * caches


# -- tables of lines and exceptions ------------------------------------------------------


def _line_table(code: CodeType, instructions: Sequence[Instruction], sizes: Any) -> Any:
    return (_lines_310 if VERSION < (3, 11) else _locations)(code, instructions, sizes)


def _lines_310(code: CodeType, instructions: Sequence[Instruction], sizes: Any) -> Any:
    """PEP 626: pairs of a length in bytes and a line delta."""
    table, line = bytearray(), code.co_firstlineno
    for instruction, size in zip(instructions, sizes):
        current = instruction.position[0] if instruction.position else None
        if current is None:
            table += bytes((size, 0x80))
            continue
        delta, line = current - line, current
        while delta > 127 or delta < -127:
            step = 127 if delta > 0 else -127
            table += bytes((0, step & 0xFF))
            delta -= step
        table += bytes((size, delta & 0xFF))
    return bytes(table)


def _locations(code: CodeType, instructions: Sequence[Instruction], sizes: Any) -> Any:
    """The location table of 3.11 and later: entries of up to eight code units."""
    table, line = bytearray(), code.co_firstlineno
    for instruction, size in zip(instructions, sizes):
        current, end_line, column, end_column = instruction.position or (None, None, None, None)
        for start in range(0, size // 2, 8):
            units = min(8, size // 2 - start) - 1
            if current is None:
                table.append(0x80 | 15 << 3 | units)
                continue
            columns: tuple[int, ...] = ()
            if column is not None and end_column is not None and end_line is not None:
                columns = (end_line - current, column + 1, end_column + 1)
            table.append(0x80 | (14 if columns else 13) << 3 | units)
            delta, line = current - line, current
            _varint(table, (-delta << 1) | 1 if delta < 0 else delta << 1)
            for value in columns:
                _varint(table, value)
    return bytes(table)


def _varint(table: Any, value: Any) -> None:
    while value >= 64:
        table.append(0x40 | (value & 0x3F))
        value >>= 6
    table.append(value)


def _exception_table(code: Any, starts: Any, offsets: Any, length: Any) -> Any:
    table = bytearray()
    for entry in getattr(dis, "_parse_exception_table")(code):  # noqa: B009 -- of Python 3.11 and later
        start = offsets[id(starts[entry.start])]
        end = offsets[id(starts[entry.end])] if entry.end in starts else length
        target = offsets[id(starts[entry.target])]
        values = (start // 2, (end - start) // 2, target // 2, entry.depth << 1 | entry.lasti)
        for index, value in enumerate(values):
            _exception_varint(table, value, 0 if index else 0x80)
    return bytes(table)


def _exception_varint(table: Any, value: Any, first_bit: Any) -> None:
    """Big-endian groups of six bits; bit 7 marks the start of an entry, bit 6 a group that continues."""
    groups = [value & 0x3F]
    while value >= 64:
        value >>= 6
        groups.append(value & 0x3F)
    for index, group in enumerate(reversed(groups)):
        continues = 0x40 if index < len(groups) - 1 else 0
        table.append(group | continues | (first_bit if index == 0 else 0))
