"""Errors of the graph engine, each pointing at the user's own line of code."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from .._errors import OneFlowError, UnsupportedError, difference_hint
from .code_origins import is_internal, is_of_standard_library

CodeLocation = tuple[str, int, str]  # (file, line, function)


def user_location(depth: int = 1) -> CodeLocation | None:
    """Return the location in the user's innermost frame, or None if there is none.

    Frames of torch and of this package are skipped.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_internal(name):
            return name, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return None


def warn_user(message: str) -> None:
    """Warn at the innermost line that is neither of torch nor of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def raised_at(error: BaseException) -> CodeLocation | None:
    """The user's innermost (file, line, function) in the traceback of an error."""
    location, tb = None, error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if not is_internal(code.co_filename) and not is_of_standard_library(code.co_filename):
            location = code.co_filename, tb.tb_lineno, code.co_name
        tb = tb.tb_next
    return location


def location_text(location: CodeLocation | None) -> str:
    """One readable line for a location of code, with the line itself if the file can be read."""
    if location is None:
        return "(no user code on the stack)"
    name, line, function = location
    code = linecache.getline(name, line).strip()
    return f'File "{name}", line {line}, in {function}' + (f": {code}" if code else "")


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).split("\n", 1)[0]


NEEDS_VALUE = (
    "build() needs the value of a tensor (.item(), bool(), int(), float() or a branch on it), which a static"
    " program does not have"
)
KEEP_VALUE = (
    "Keep the value in the graph: torch.where(condition, a, b) instead of `if`, tensor arithmetic instead of"
    " .item(), or compute it outside and pass it as an argument."
)


BRANCH_ON_TENSOR = (
    "The number is sampled: branch on a comparison of the tensor, as in `if torch.rand([]) < p`, without"
    " .item(). Each outcome has its own program."
)


KEEP_SIZE = (
    "Compute with it without a branch, or use a form with a fixed shape: torch.where(mask, x, y) or x * mask"
    " instead of x[mask]."
)
KEEP_PADDED = (
    "Pad the rows to one length (torch.nn.utils.rnn.pad_sequence) and give a mask of them, or pack them"
    " (pack_padded_sequence)."
)


class _ErrorsOfCapture(threading.local):
    errors: list[Exception] | None = None  # while build() is captured in this thread


_of_capture = _ErrorsOfCapture()


def note_error(error: Exception) -> None:
    """Note an error that a capture is about to raise, and that eager mode does not raise."""
    if _of_capture.errors is not None:
        _of_capture.errors.append(error)


class CaptureError(OneFlowError):
    """build() did something without meaning in a static program; the message shows the user's line."""

    def __init__(self, what: str, instead: str, location: CodeLocation | None = None) -> None:
        location = location or user_location(2)
        super().__init__(f"{what}\n  {location_text(location)}\n  {instead}")
        self.location = location
        self.is_before_model = False  # whether build() had used no parameter when it was raised
        self.stack: tuple[CodeLocation, ...] = ()  # the lines that ran at the cause, if it is noticed later
        note_error(self)


@contextlib.contextmanager
def no_error_is_caught() -> Iterator[None]:
    """Raise an error of the capture again that code of the user's or of a library caught inside the block.

    Eager mode raises no such error, so the program would hold the branch of an `except` that eager mode does
    not take:

        try:
            scale = float(x[0])
        except Exception:
            scale = 1.0
    """
    outer, _of_capture.errors = _of_capture.errors, []
    try:
        yield
        caught = next(filter(_is_caught_by_user, _of_capture.errors), None)
    finally:
        _of_capture.errors = outer
    if caught is not None:
        raise CaptureError(
            f"build() caught an error of the capture, which eager mode does not raise: {first_line(caught)}",
            "Let build() compute the value without `try`, or outside of the graph.",
            raised_at(caught),
        ) from caught


def _is_caught_by_user(error: Exception) -> bool:
    """Whether a raised error ended in code that is neither torch's, nor Python's, nor of this package."""
    traceback = error.__traceback__
    if traceback is None:
        return False
    name = traceback.tb_frame.f_code.co_filename  # the frame that caught the error is the first
    return not is_of_standard_library(name) and (name.startswith("<") or not is_internal(name))


class UsageError(CaptureError):
    """The graph is set up in a way that has no meaning in eager mode either."""


class RaisedInBuild(CaptureError):
    """build() raised an error, which may be that of eager mode, or one that symbolic tensors cause."""

    def __init__(self, error: BaseException) -> None:
        what = f"the capture of build() raises {type(error).__name__}: {first_line(error)}"
        super().__init__(what, "Eager mode does not raise it.", raised_at(error))


class TooManyBranches(CaptureError):
    """A call takes so many branches on values that programs of their outcomes would never end."""

    def __init__(self, tried: int) -> None:
        super().__init__(
            f"{tried} programs were tried for one call, one for each branch on a value", KEEP_VALUE
        )


class ReadNotFollowed(CaptureError):
    """build() reads what no guard can follow, or what is another thing while it is captured."""


class UnsupportedInGraph(CaptureError, UnsupportedError):
    """Something that works in eager mode but not in a program; the message names the difference row."""

    def __init__(self, what: str, difference: str, instead: str) -> None:
        super().__init__(f"{what} {difference_hint(difference)}", instead, user_location(2))


class GraphTypeError(CaptureError, TypeError, NotImplementedError):
    """An argument or output of build() has a type that a program cannot take."""

    argument: str | None = None  # name of the argument, if an argument has the type


@dataclass(frozen=True)
class Specialization:
    """A dimension that was to be symbolic, and that the capture needed as a number.

    `is_compared`: only because a comparison such as `n == 7` holds. Other sizes may have a symbol.
    """

    argument: int
    name: str
    dim: int
    size: int
    location: CodeLocation | None
    is_compared: bool

    def __str__(self) -> str:
        return f"dimension {self.dim} of the argument {self.name!r}, {location_text(self.location)}"


class CapturedAgain(Exception):
    """Base of the signals that a capture needs something else, and is repeated."""


class SizesNeeded(CapturedAgain):
    """A capture needs some dimensions as numbers that were to be symbols; it is repeated with the numbers."""

    def __init__(self, specializations: Sequence[Specialization]) -> None:
        super().__init__("; ".join(map(str, specializations)))
        self.specializations = specializations


class ViewsNeeded(CapturedAgain):
    """build() writes to x[i] with an integer tensor i, or to x while x[i] is in use: x[i] must be a view."""


class NumbersNeeded(CapturedAgain):
    """build() needs the values of Python numbers that were to be inputs, given by their identities."""

    def __init__(self, identities: Sequence[tuple[int, Any]]) -> None:
        super().__init__("build() needs the value of a number itself")
        self.identities = identities


class NumbersFound(CapturedAgain):
    """build() reads Python numbers and changes them itself, so they become inputs of the program."""


# build() runs once more in the same call after these errors, under capture or in eager mode.
CAPTURED_AGAIN: tuple[type[Exception], ...] = (CaptureError, CapturedAgain)


class ProgramError(OneFlowError):
    """Program.check() found an inconsistency.

    It is a defect of a pass or of the capture, not of the user's code.
    """


def inside_another() -> CaptureError:
    return CaptureError(
        "a graph was called inside the build() of another graph",
        "Call the module, or do the work of the inner build() directly.",
    )
