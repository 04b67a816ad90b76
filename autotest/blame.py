"""Which line of the test a failure is about, and a traceback that ends there."""

from __future__ import annotations

import os
import sys
import types

PACKAGE = os.path.dirname(__file__) + os.sep
# part of the path of Hypothesis's files, whose frames say nothing about a test
HYPOTHESIS = f"{os.sep}hypothesis{os.sep}"


def line_of_test() -> tuple[types.CodeType, int] | None:
    """Return the code and the line outside of this package that made the current call."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lineno)


def shown_path(path: str) -> str:
    """Return a path relative to the working directory, if it lies below."""
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below


def with_users_traceback(error: Exception, code: types.CodeType | None, line: int) -> Exception:
    """Return the error with a traceback without frames of this package and of Hypothesis.

    If none is left, the comparison came after the test's own code. The traceback then shows this line. An
    error that this package raises, and that is no difference, keeps its frames: it may be a defect here.
    """
    if not hasattr(error, "check") and _is_raised_here(error.__traceback__):
        return error
    seen: set[int] = set()
    part: BaseException | None = error
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        part.__traceback__ = _shown(part.__traceback__)
        part = part.__cause__ or part.__context__
    if error.__traceback__ is None and code is not None:
        error.__traceback__ = _traceback_at(code, line)
    return error


def _is_raised_here(traceback: types.TracebackType | None) -> bool:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(PACKAGE)


def _shown(traceback: types.TracebackType | None) -> types.TracebackType | None:
    kept = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(PACKAGE) and HYPOTHESIS not in file:
            kept.append(traceback)
        traceback = traceback.tb_next
    shown: types.TracebackType | None = None
    for part in reversed(kept):
        shown = types.TracebackType(shown, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return shown


def _traceback_at(code: types.CodeType, line: int) -> types.TracebackType | None:
    """Return the traceback of an exception raised at a line of this code.

    A frame cannot be made, so code of the same name, file and line is run, as template engines do.
    """
    source = "\n" * max(line - code.co_firstlineno, 0) + "raise AssertionError"
    raising = compile(source, code.co_filename, "exec")
    raising = raising.replace(co_name=code.co_name, co_firstlineno=code.co_firstlineno)
    try:
        exec(raising, {})
    except AssertionError as e:
        assert e.__traceback__ is not None
        return e.__traceback__.tb_next
    return None
