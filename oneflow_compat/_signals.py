"""Python's signal handlers wait while something must not be left half done.

A handler runs in the main thread between any two bytecodes, and may raise: Ctrl-C does, and so do time limits
such as those of pytest-timeout. A call of a graph would then end with half of its state written. A capture
has a second reason: torch calls Python from C++ code that ends the process when an exception comes out of it.

    with held():  # handlers that run from here on only take a note
        ...
        run_waiting_handlers()  # they run, and may raise, where the block says so
    # they run at the end of the outermost block

`_signal` is the C form of the module `signal`. It takes a thirtieth of the time, because it makes no enums.
"""

from __future__ import annotations

import _signal
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Literal

Handler = Callable[[int, "FrameType | None"], Any]

_SIGNALS = range(1, _signal.NSIG)
_INTERRUPTIBLE = ("subprocess", "selectors")  # modules that wait; an exception in them is safe


class _State:
    """What the main thread holds back."""

    def __init__(self) -> None:
        self.is_held = False
        self.acts_again = False  # whether a second Ctrl-C acts immediately
        self.installed: dict[int, _Waiting] = {}  # {number of the signal: its handler}
        self.waiting: dict[int, Handler] = {}  # handlers that took a note, by the number of the signal
        self.error: BaseException | None = None  # the exception of a handler that ran inside the block


_state = _State()


class _Waiting:
    """The handler of a signal while signals are held."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not _state.is_held or _is_interruptible(frame) or self._is_repeated(number):
            _state.waiting.pop(number, None)
            _run(self.handler, number, frame)
        else:
            _state.waiting.setdefault(number, self.handler)

    def _is_repeated(self, number: int) -> bool:
        """Whether the user presses Ctrl-C again because the first press takes too long."""
        return (
            _state.acts_again
            and number in _state.waiting
            and number == signal.SIGINT
            and self.handler is signal.default_int_handler
        )


def _is_interruptible(frame: FrameType | None) -> bool:
    """Whether a process, for example a compiler, is being waited for."""
    return frame is not None and frame.f_globals.get("__name__") in _INTERRUPTIBLE


class held:
    """Let the handlers of all signals wait for the end of the block, or for `run_waiting_handlers`.

    Python runs handlers in the main thread only. In other threads, and in a block within another one, this
    does nothing.
    """

    def __enter__(self) -> None:
        self.is_outermost = not _state.is_held and threading.current_thread() is threading.main_thread()
        if self.is_outermost:
            try:
                _hold()
            except BaseException:
                _release()
                raise

    def __exit__(self, *error: object) -> Literal[False]:
        if self.is_outermost:
            _release()
        return False


def _hold() -> None:
    _state.is_held = True
    for number, handler in zip(_SIGNALS, [*map(_signal.getsignal, _SIGNALS)]):
        if callable(handler):
            waiting = _state.installed[number] = _Waiting(handler)
            _signal.signal(number, waiting)


def _release() -> None:
    """Put the handlers back, and run those that wait. Raise the first error of a handler."""
    error: BaseException | None = None
    while _state.is_held:
        try:
            _put_back()
            _state.is_held = False
        except BaseException as raised:  # an exception of a handler that is in force again
            error = error or raised
    try:
        run_waiting_handlers()
    finally:
        _state.error = None  # the traceback of an error holds frames
        if error is not None:
            raise error


def _put_back() -> None:
    while _state.installed:
        number, waiting = next(iter(_state.installed.items()))
        if _signal.getsignal(number) is waiting:  # else build() installed another one
            _signal.signal(number, waiting.handler)
        _state.installed.pop(number, None)


def run_waiting_handlers() -> None:
    """Run the handlers of the signals that came since the block began or this ran last."""
    if not _state.waiting or threading.current_thread() is not threading.main_thread():
        return
    number = next(iter(_state.waiting))
    handler = _state.waiting.pop(number)
    try:
        _run(handler, number, sys._getframe(1))
    finally:
        run_waiting_handlers()


def _run(handler: Handler, number: int, frame: FrameType | None) -> None:
    """Run the handler of a signal, and note what it raises inside the block."""
    try:
        handler(number, frame)
    except BaseException as error:
        _state.error = error
        raise


@contextlib.contextmanager
def second_interrupt_acts_at_once() -> Iterator[None]:
    """Let a second Ctrl-C act immediately in a part of a `held` block that may take long."""
    before, _state.acts_again = _state.acts_again, True
    try:
        yield
    finally:
        _state.acts_again = before


def completed(function: Callable[[], None]) -> None:
    """Call a function, which no handler of a signal interrupts. Handlers raise when it has returned."""
    error: BaseException | None = None
    is_called = is_done = False
    while not is_done:
        try:
            with held():
                is_called = True
                function()
                is_done = True
        except BaseException as raised:
            if is_called and not is_done:
                raise
            error = raised  # the exception of a handler, before or after the call
    if error is not None:
        raise error


def error_of_handler(error: BaseException | None) -> BaseException | None:
    """Return what a handler raised in this block, if it is the error or a cause of it, else None."""
    while error is not None and error is not _state.error:
        error = error.__cause__ or error.__context__
    return error
