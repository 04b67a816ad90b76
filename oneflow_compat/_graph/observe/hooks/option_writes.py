"""Where build() first writes to a group of an optimizer: `group["lr"] = rate`.

A program cannot hold such a line, which step() of the optimizer notices later. A compiled step is cut there.
"""

from __future__ import annotations

import sys
import types
from typing import NamedTuple

from ...errors import CaptureError, CodeLocation


class OptionWrite(NamedTuple):
    """One write, and the lines that were running, innermost first."""

    location: CodeLocation
    stack: tuple[CodeLocation, ...]
    is_before_model: bool  # whether build() had used no parameter

    def error(self, optimizer: type) -> CaptureError:
        """Return the error of a program that would hold the write."""
        error = CaptureError(
            f"the step itself changes options of an optimizer ({optimizer.__name__})",
            "Change them in the first or last lines of the step, or use a schedule.",
            self.location,
        )
        error.stack, error.is_before_model = self.stack, self.is_before_model
        return error


def is_group(container: object) -> bool:
    """Whether a container looks like a group of an optimizer."""
    return type(container) is dict and "params" in container


def running_lines() -> tuple[CodeLocation, ...]:
    """Return the lines of all functions that run now, from the caller's caller on."""
    lines, frame = [], sys._getframe(2).f_back
    while frame is not None:
        lines.append(_line_of(frame))
        frame = frame.f_back
    return tuple(lines)


def _line_of(frame: types.FrameType) -> CodeLocation:
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
