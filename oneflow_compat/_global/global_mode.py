"""The stack behind utils.global_view.global_mode; creation functions read `current()`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, ParamSpec, TypeVar


class Mode(NamedTuple):
    enabled: bool
    placement: object = None
    sbp: tuple[Any, ...] | None = None


stack: list[Mode] = []
OFF = Mode(False)
SYMBOLIC = Mode(False, "symbolic")  # torch's symbolic kernels run: their tensors are not the user's


def current() -> Mode:
    return stack[-1] if stack else OFF


@contextlib.contextmanager
def _pushed(mode: Mode) -> Iterator[None]:
    stack.append(mode)
    try:
        yield
    finally:
        stack.pop()


def off() -> contextlib.AbstractContextManager[Any]:
    return _pushed(OFF)


def symbolic_kernels() -> contextlib.AbstractContextManager[Any]:
    """Use torch's own new_empty and its siblings of a global tensor in the block.

    torch's symbolic kernels run in it, which may be inside global_mode.
    """
    return _pushed(SYMBOLIC) if stack else contextlib.nullcontext()


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def outside_mode(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wrap `function` so that it runs outside of global_mode: torch's own code makes ordinary tensors."""

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if not stack:
            return function(*args, **kwargs)
        with off():
            return function(*args, **kwargs)

    return call
