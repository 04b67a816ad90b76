"""Helpers of nn.Graph by their deep path: the argument tree and small texts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .args_tree import ArgsTree, NamedArg

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["ArgsTree", "NamedArg", "add_indent", "seq_to_func_return", "sys_exc_error_msg"]


def add_indent(in_s: str, num_spaces: int) -> str:
    """Indent all lines of the text but the first."""
    return in_s.replace("\n", "\n" + " " * num_spaces)


def seq_to_func_return(seq: Sequence[Any], need_unpack: bool = False) -> Any:
    """Return `seq` itself, or its first item with need_unpack."""
    return seq[0] if need_unpack else seq


def sys_exc_error_msg() -> str:
    """Return the class and text of the exception being handled, with the location of a syntax error; ""
    outside an except block.
    """
    error_class, error, _ = sys.exc_info()
    if error is None:
        return ""
    location = f" in {error.filename} at line {error.lineno}" if isinstance(error, SyntaxError) else ""
    return f"{error_class} {error}{location}"
