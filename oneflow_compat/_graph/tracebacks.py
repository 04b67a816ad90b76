"""Short tracebacks of errors in build(): the user's lines, without the frames of the engine and of torch."""

from __future__ import annotations

import contextlib
import linecache
import os
from collections.abc import Iterator
from types import TracebackType

from .._env import get
from .code_origins import is_internal, is_of_this_package

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(_HERE)) + os.sep
_ENGINE = (_HERE, os.path.join(_PACKAGE, "nn", "graph") + os.sep)
# the wrappers of this file call functions of torch with other names
_RENAMING = os.path.join(_PACKAGE, "_bind.py")
_FOLDED = (*_ENGINE, _RENAMING, contextlib.__file__)


def fold(error: BaseException) -> None:
    """Remove the frames of the engine and of torch from the traceback of an error.

    The user's line is last then, or the line of a function of this package that it calls:

        File "train.py", line 9, in <module>: step(x)
        File "train.py", line 5, in build: y = self.model(x)
        RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x3)

    An error that code of the engine causes, and does not raise itself, keeps its traceback: it is a defect.
    So does an error of torch's compiler.
    ONEFLOW_LOGS=tracebacks keeps all tracebacks.
    """
    entries = list(_entries(error.__traceback__))
    if not entries or "tracebacks" in get("ONEFLOW_LOGS").split(","):
        return
    kept = [entry for entry in entries if not _is_folded(entry)]
    if _is_defect(entries[-1], is_of_build=bool(kept)):
        return
    folded: TracebackType | None = None  # the frames of the caller are added when the error is raised again
    for entry in reversed(kept):
        folded = TracebackType(folded, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = folded
    if error.__cause__ is not None:
        fold(error.__cause__)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _is_folded(entry: TracebackType) -> bool:
    name = _file(entry)
    if name.startswith(_FOLDED):
        return True
    if is_of_this_package(name):
        return False
    return is_internal(name) and not name.startswith("<")  # a console and exec() have the user's code


def _is_defect(entry: TracebackType, is_of_build: bool) -> bool:
    """Whether the innermost frame is of the engine, and neither at a `raise` nor at a call of build().

    If no frame is the user's (`is_of_build` is false), an innermost frame elsewhere is a defect, too.
    """
    if not _file(entry).startswith(_ENGINE):
        return not is_of_build
    code = linecache.getline(_file(entry), entry.tb_lineno).strip()
    is_expected = (
        code.startswith("raise") or "build(*args, **kwargs)" in code
    )  # the wrong number of arguments
    return not is_expected
