"""The calls on global tensors that a capture has seen, in a form that is the same on every rank.

The operators of a program differ between ranks, because each rank works on its own shards. The calls on the
global tensors do not: each rank runs the same build(). The graph compares these calls between the ranks. For
example, `y = x * 2` adds

    mul.Tensor(x, 2.0) -> t1: float32[8, 4] split(dim=0) on cpu [0, 1]
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from .. import sbp
from .._active import STATE
from .marks import OfSeveralRanks
from .placement import placement as Placement

_P = ParamSpec("_P")
_R = TypeVar("_R")

_captures = itertools.count()


class CallLog:
    """The calls of one capture, a line each, and the location in the user's code for each line.

    A call that another call makes is left out, because such calls may depend on the shard of a rank.
    """

    def __init__(
        self,
        location: Callable[[], Any],
        is_live: Callable[[float], bool],
        text_of_local: Callable[[torch.Tensor], str],
    ) -> None:
        """`location()` is a location in the user's code. `is_live` is true for a number that may change.

        `text_of_local` describes an ordinary tensor that every rank has computed for itself.
        """
        self.lines: list[str] = []
        self.locations: list[Any] = []
        self._location, self._is_live, self._text_of_local = location, is_live, text_of_local
        self.is_shared = False  # whether the program has global tensors or collectives
        self._depth = 0
        self._count = 0
        self._capture = next(_captures)

    @property
    def is_outside(self) -> bool:
        """Whether no call on global tensors runs."""
        return not self._depth

    def add(self, line: str) -> None:
        """Add a call, which must be the same on every rank."""
        self.lines.append(line)
        self.locations.append(self._location())

    def add_fact(self, line: str) -> None:
        """Add a fact that no line of build() states."""
        self.lines.append(line)
        self.locations.append(None)

    def record(self, name: str, args: tuple[Any, ...], call: Callable[[], _R]) -> _R:
        """Make a call, add it, and return its result."""
        if self._depth:
            return call()
        line = f"{name}({', '.join(map(self.describe, args))})"
        self.is_shared = True
        self._depth += 1
        try:
            out = call()
        finally:
            self._depth -= 1
        self.add(f"{line} -> {self._result(out)}")
        return out

    def describe(self, value: Any) -> str:
        """Return the text of an argument: the name of a global tensor, or a Python value."""
        if isinstance(value, torch.Tensor):
            return self._name(value) if isinstance(value, OfSeveralRanks) else self._text_of_local(value)
        if isinstance(value, _SYMBOLIC) or type(value) is float and self._is_live(value):
            return "a number of the call"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.describe, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key}: {self.describe(item)}' for key, item in value.items())}}}"
        if isinstance(value, Placement):
            return f"{value.type} {value.ranks.tolist()}"
        return str(value) if isinstance(value, _PLAIN) else type(value).__name__

    def form(self, tensor: Any) -> str:
        """Return dtype, shape, SBP and ranks of a global tensor."""
        shape = ", ".join(self.describe(size) for size in tensor.shape)
        nd_sbp = ", ".join(str(r).removeprefix("oneflow.sbp.") for r in tensor._of_sbp)
        dtype = str(tensor.dtype).removeprefix("torch.")
        return f"{dtype}[{shape}] {nd_sbp} on {self.describe(tensor._of_placement)}"

    def add_argument(self, tensor: Any, name: str) -> None:
        """Add a global tensor among the arguments of a call."""
        self._set_name(tensor, name)
        self.add_fact(f"argument {name}: {self.form(tensor)}")

    def _name(self, tensor: Any) -> str:
        """Return the name of a tensor. A new one of no module gets a number, and its form follows."""
        capture, name = getattr(tensor, "_of_log", _UNNAMED)
        if capture == self._capture:
            return str(name)
        state = getattr(STATE, "state", None)
        name = state.name_of(tensor) if state is not None else None
        return self._set_name(tensor, name) if name else self._numbered(tensor)

    def _numbered(self, tensor: Any) -> str:
        self._count += 1
        return f"{self._set_name(tensor, f't{self._count}')}: {self.form(tensor)}"

    def _set_name(self, tensor: Any, name: str) -> str:
        self.is_shared = True
        tensor._of_log = self._capture, name
        return name

    def _result(self, out: Any) -> str:
        if isinstance(out, OfSeveralRanks):
            capture, name = getattr(out, "_of_log", _UNNAMED)
            return str(name) if capture == self._capture else self._numbered(out)
        if isinstance(out, (list, tuple)):
            return f"[{', '.join(map(self._result, out))}]"
        return type(out).__name__


_UNNAMED = (None, "")
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (int, float, complex, str, bool, type(None), torch.dtype, torch.layout, torch.memory_format, sbp.sbp)


def current() -> CallLog | None:
    """Return the log of the capture in this thread, or None."""
    recorder = getattr(STATE, "recorder", None)
    return None if recorder is None else recorder.calls


def recorded(name: str, skipped: int = 0) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: a call of this function during a capture is added to the log of the capture.

    The first `skipped` arguments may differ between ranks.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            log = current()
            if log is None:
                return function(*args, **kwargs)
            compared = (*args[skipped:], *kwargs.values())
            return log.record(name, compared, lambda: function(*args, **kwargs))

        return wrapped

    return decorate
