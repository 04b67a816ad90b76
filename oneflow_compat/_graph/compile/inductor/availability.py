"""Shortcuts of compiling that a torch with another interface goes without: it takes seconds longer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

NO_SUCH_NAME = ImportError, AttributeError
_OTHER_INTERFACE = *NO_SUCH_NAME, TypeError, NameError


@contextlib.contextmanager
def where_available(*shortcuts: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Enter the shortcuts whose names the installed torch has."""
    with contextlib.ExitStack() as stack:
        for shortcut in shortcuts:
            with contextlib.suppress(*NO_SUCH_NAME):
                stack.enter_context(shortcut())
        yield


def met_another_interface(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is that of a call that does not fit the code of this torch."""
    while error is not None:
        if isinstance(error, _OTHER_INTERFACE):
            return True
        error = error.__cause__ or error.__context__
    return False
