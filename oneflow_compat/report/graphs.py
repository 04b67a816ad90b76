"""The graphs of a run: their calls, captures and fallbacks, and why calls ran in eager mode."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .._graph import CodeLocation, EagerCalls, Engine, location_text, user_location

_EAGER = "calls in eager mode"  # the subject of such an explanation


@dataclass(frozen=True)
class Reason:
    """Why a graph has another program, or calls in eager mode; with the line of the user's code, if known."""

    subject: str
    reason: str
    location: str = ""


@dataclass
class GraphRecord:
    """One graph. Calls without a program ran in eager mode, or raised."""

    engine: Engine
    created: CodeLocation | None
    calls: int = 0
    eager_calls: int = 0
    failed_calls: int = 0
    captures: int = 0
    capture_seconds: float = 0.0  # the seconds include compilation
    fallbacks: list[str] = field(default_factory=list)  # warnings that a program runs on another backend

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def kind(self) -> str:
        return "compiled step" if self.engine.definition.steps_in_build else "graph"

    @property
    def program_calls(self) -> int:
        return self.calls - self.eager_calls - self.failed_calls

    @property
    def backend(self) -> str:
        return self.engine.backend

    @property
    def reasons(self) -> list[Reason]:
        """What needed more programs or eager mode, as `graph.explain()` tells it."""
        unobserved = self.engine.eager_calls.unobserved
        if unobserved is not None:
            return [Reason(_EAGER, unobserved)]
        return [
            Reason(e.subject, e.reason, location_text(e.location) if e.location is not None else "")
            for e in self.engine.assumptions.explanations
        ]


class GraphRecorder:
    """Records each graph that is made and called inside `recording()`."""

    def __init__(self) -> None:
        # {id of an engine: its record, which keeps the engine alive}
        self._records: dict[int, GraphRecord] = {}
        self._by_assumptions: dict[int, GraphRecord] = {}

    @property
    def records(self) -> list[GraphRecord]:
        """The graphs that were called, in the order in which they were made."""
        return [record for record in self._records.values() if record.calls]

    @contextmanager
    def recording(self) -> Iterator[GraphRecorder]:
        """Count calls of graphs inside the block. Engines that exist already are left out."""
        originals: dict[tuple[type, str], Callable[..., Any]] = {
            (Engine, "__init__"): self._made,
            (Engine, "_make_entry"): self._captured,
            (EagerCalls, "__call__"): self._called_eagerly,
        }
        saved: list[tuple[type, str, Any]] = [
            (owner, name, getattr(owner, name)) for owner, name in originals
        ]
        for owner, name, function in saved:
            setattr(owner, name, _around(function, originals[owner, name]))
        show = warnings.showwarning
        warnings.showwarning = self._showing(show)
        try:
            yield self
        finally:
            warnings.showwarning = show
            for owner, name, function in saved:
                setattr(owner, name, function)

    # -- what stands around the functions ---------------------------------------------------
    def _made(self, function: Callable[..., Any], engine: Engine, *args: Any, **kwargs: Any) -> Any:
        result = function(engine, *args, **kwargs)
        record = GraphRecord(engine, user_location())
        self._records[id(engine)] = self._by_assumptions[id(engine.assumptions)] = record
        engine.call = functools.partial(self._called, record, engine.call)
        return result

    def _called(
        self, record: GraphRecord, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        record.calls += 1
        eager_before = record.eager_calls
        try:
            return call(args, kwargs)
        except BaseException:
            record.failed_calls += record.eager_calls == eager_before
            raise

    def _captured(self, function: Callable[..., Any], engine: Engine, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(engine, *args, **kwargs)
        finally:
            record = self._records.get(id(engine))
            if record is not None:
                record.captures += 1
                record.capture_seconds += time.perf_counter() - begin

    def _called_eagerly(
        self, function: Callable[..., Any], eager: EagerCalls, *args: Any, **kwargs: Any
    ) -> Any:
        record = self._by_assumptions.get(id(eager.assumptions))
        if record is not None:
            record.eager_calls += 1
        return function(eager, *args, **kwargs)

    def _showing(self, show: Callable[..., None]) -> Callable[..., None]:
        def showwarning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            text = str(message)
            for record in self._records.values():
                if "aten" in text and text.startswith(f"graph {record.name}:"):
                    record.fallbacks.append(text.removeprefix(f"graph {record.name}: "))
            show(message, *args, **kwargs)

        return showwarning


def _around(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapper(function, *args, **kwargs)

    return call
