"""Ctrl-C during a capture acts at the next operator.

torch calls Python from C++ code that ends the process when a KeyboardInterrupt is raised there, and a change
of torch's classes should not stop in its middle. So the first Ctrl-C waits; a second one acts at once.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_waiting: list[Any] = []  # the signal number, once Ctrl-C was pressed in this capture


def raise_waiting_interrupt() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed since the last operator."""
    if _waiting and threading.current_thread() is threading.main_thread():
        _waiting.clear()
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts_at_operators() -> Iterator[None]:
    """Let Ctrl-C wait for `raise_waiting_interrupt` or for the end of the block.

    Python handles signals in the main thread only. A handler of the user stays in force.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    _waiting.clear()
    signal.signal(signal.SIGINT, _wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise_waiting_interrupt()


def _wait(signal_number: int, frame: object) -> None:
    if _waiting:
        raise_waiting_interrupt()
    _waiting.append(signal_number)
