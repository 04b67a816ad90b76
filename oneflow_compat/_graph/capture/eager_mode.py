"""End a capture whose build() raises, or leaves a setting of torch changed: the call runs in eager mode."""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._signals import error_of_handler
from ..errors import CAPTURED_AGAIN, CaptureError, RaisedInBuild
from ..guards.torch_settings import present_settings, restore_settings

if TYPE_CHECKING:
    from .interfaces import CaptureInterface


@contextlib.contextmanager
def left_to_eager_mode(capture: CaptureInterface) -> Iterator[None]:
    """End the capture if build() raises, or leaves a setting of torch changed.

    Eager mode raises the same error, or none: more code refuses symbolic tensors.
    """
    config = capture.config
    before = present_settings()
    try:
        yield
    except CAPTURED_AGAIN:
        restore_settings(before)
        raise
    except BaseException as error:
        if error_of_handler(error) is not None or config.strict or not config.ends_capture:
            raise
        if not isinstance(error, Exception) and not _is_raised_by_code(error):
            raise
        restore_settings(before)
        raise RaisedInBuild(error) from error
    if config.ends_capture or config.strict:
        changed = restore_settings(before)
        if changed is not None:
            raise CaptureError(
                f"build() leaves {changed} changed",
                "Set it outside of build(), or set it back before build() returns.",
            )


def _is_raised_by_code(error: BaseException) -> bool:
    """Whether a `raise` statement or sys.exit() raised an error, and not another thread."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or isinstance(error, SystemExit):
        return traceback is not None
    code, offset = traceback.tb_frame.f_code.co_code, traceback.tb_lasti
    return dis.opname[code[offset]] in ("RAISE_VARARGS", "RERAISE")
