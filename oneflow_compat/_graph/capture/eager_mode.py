"""End a capture whose build() raises, or leaves a setting of torch changed: the call runs in eager mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._signals import error_of_handler
from ..errors import CAPTURED_AGAIN, CaptureError, RaisedInBuild
from ..observe import restore_settings, setting_guards

if TYPE_CHECKING:
    from .interfaces import CaptureInterface


@contextlib.contextmanager
def left_to_eager_mode(capture: CaptureInterface) -> Iterator[None]:
    """End the capture if build() raises, or leaves a setting of torch changed.

    Eager mode raises the same error, or none: more code refuses symbolic tensors.
    """
    config = capture.config
    before = setting_guards(records_gradients=False)
    try:
        yield
    except CAPTURED_AGAIN:
        restore_settings(before)
        raise
    except Exception as error:
        if error_of_handler(error) is not None or config.strict or not config.ends_capture:
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
