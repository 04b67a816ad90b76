"""Apply the edits of findings to source files.

The edits are insertions at positions from `ast`, so the surrounding text keeps its formatting. The new text
is parsed and compared with the intended syntax tree; an edit that gives another tree is dropped.
"""

from __future__ import annotations

import ast
import io
import os
import re
import tempfile
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .rules import AddKeyword, Edit, NameArgument, ReplaceArgument

if TYPE_CHECKING:
    pass


EditedCall = tuple[ast.Call, list[Edit]]


class _Source:
    """A decoded source file, with access to characters by the positions of `ast`."""

    def __init__(self, source: bytes) -> None:
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        self.content = source.decode(self.encoding)
        self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.content))]

    def offset(self, line: int, column: int) -> int:
        """Return the index of the character at a line and a column in UTF-8 bytes."""
        start = self._starts[line - 1]
        if self.content[start : start + column].isascii():
            return start + column
        return start + len(self.content[start : start + column].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)


@dataclass(frozen=True)
class _Splice:
    """Text that replaces the characters from `start` to `end`."""

    start: int
    end: int
    replacement: str


def fixed_source(source: bytes, calls: list[EditedCall]) -> tuple[bytes, int]:
    """Return the source with the calls edited, and the number of edited calls."""
    file = _Source(source)
    splices: list[_Splice] = []
    count = 0
    for call, edits in calls:
        planned = _splices(file, call, edits)
        start, end = file.span(call)
        local = [_Splice(splice.start - start, splice.end - start, splice.replacement) for splice in planned]
        if _is_intended(_spliced(file.content[start:end], local), call, edits):
            splices += planned
            count += 1
    result = _spliced(file.content, splices).encode(file.encoding)
    ast.parse(result)
    return result, count


def _splices(source: _Source, call: ast.Call, edits: list[Edit]) -> list[_Splice]:
    splices = []
    for edit in edits:
        if isinstance(edit, AddKeyword):
            splices.append(_added_argument(source, call, f"{edit.keyword}={edit.value}"))
        elif isinstance(edit, NameArgument):
            start = _argument_start(source, call, edit.index)
            splices.append(_Splice(start, start, f"{edit.keyword}="))
        else:
            splices.append(_Splice(*source.span(call.args[edit.index]), f"{edit.keyword}={edit.value}"))
    return splices


def _argument_start(source: _Source, call: ast.Call, index: int) -> int:
    """Return the start of a positional argument, including parentheses around it."""
    start = source.span(call.args[index])[0]
    before = source.content[source.span(call.args[index - 1])[1] : start]
    after_comma = before.rpartition(",")[2]
    return start - len(after_comma.lstrip())


def _added_argument(source: _Source, call: ast.Call, argument: str) -> _Splice:
    """Return the insertion of one more argument in the style of the call.

    The argument is added on the line of the last argument or on its own line. Comments are kept.
    """
    close = source.span(call)[1] - 1
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not values:
        return _Splice(close, close, argument)
    last_start, last_end = max(map(source.span, values), key=lambda span: span[1])
    tail = source.content[last_end:close]  # parentheses, a comma, comments and white space
    code = re.sub(r"#[^\r\n]*", lambda comment: " " * len(comment[0]), tail)
    code_end = last_end + len(code.rstrip())
    has_comma = code.rstrip().endswith(",")
    if "\n" not in source.content[code_end:close]:
        return _Splice(code_end, code_end, f"{' ' if has_comma else ', '}{argument}")
    line_start = source.content.rfind("\n", 0, last_start) + 1
    line = source.content[line_start:]
    indent = line[: len(line) - len(line.lstrip())]
    newline = "\r\n" if "\r\n" in tail else "\n"
    end = last_end + len(tail.rstrip())
    comment = source.content[code_end:end]
    added = f"{newline}{indent}{argument}{',' * has_comma}"
    return _Splice(code_end, end, f"{'' if has_comma else ','}{comment}{added}")


def _spliced(source: str, splices: list[_Splice]) -> str:
    for splice in sorted(splices, key=lambda splice: splice.start, reverse=True):
        source = source[: splice.start] + splice.replacement + source[splice.end :]
    return source


def _is_intended(source: str, call: ast.Call, edits: list[Edit]) -> bool:
    """Whether the source of an edited call is the call with these edits, and nothing else."""
    intended = ast.Call(call.func, list(call.args), list(call.keywords))
    named = [edit for edit in edits if not isinstance(edit, AddKeyword)]
    moved = [ast.keyword(edit.keyword, _new_value(edit, call.args[edit.index])) for edit in named]
    added = [
        ast.keyword(edit.keyword, ast.parse(edit.value, mode="eval").body)
        for edit in edits
        if isinstance(edit, AddKeyword)
    ]
    intended.args = [
        value for index, value in enumerate(call.args) if index not in {edit.index for edit in named}
    ]
    intended.keywords = [*moved, *call.keywords, *added]
    try:
        return ast.dump(ast.parse(f"({source})", mode="eval").body) == ast.dump(intended)
    except (SyntaxError, ValueError):
        return False


def _new_value(edit: NameArgument | ReplaceArgument, value: ast.expr) -> ast.expr:
    return value if isinstance(edit, NameArgument) else ast.parse(edit.value, mode="eval").body


def write(file: str, source: bytes) -> None:
    """Replace the content of a file atomically. Keep its mode."""
    target = os.path.realpath(file)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(source)
        os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
