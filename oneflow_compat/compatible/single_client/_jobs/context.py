"""The current state: the job that is being traced and the scopes that the user opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_trace: ContextVar[Any] = ContextVar("oneflow_job_trace", default=None)
_scopes: ContextVar[Any] = ContextVar("oneflow_job_scopes", default=())


class NeedsEager(Exception):
    """An operator of the job has a result whose shape depends on values: the job runs op by op instead."""


def trace() -> Any:
    """The trace of the job function that is being defined, None outside."""
    return _trace.get()


def require_trace(what: str) -> Any:
    """Return the current trace; outside a job function, raise an error that names `what`."""
    current = _trace.get()
    if current is None:
        raise RuntimeError(
            f"{what} was called outside a job function; call it inside a function decorated with"
            " @flow.global_function(...)"
        )
    return current


@contextmanager
def tracing(new: Any) -> Iterator[Any]:
    """Make `new` the current trace, with no scope of the outside visible but the job's own."""
    token, scopes = _trace.set(new), _scopes.set(())
    try:
        yield new
    finally:
        _scopes.reset(scopes)
        _trace.reset(token)


@contextmanager
def scope(scope_kind: str, value: Any) -> Iterator[Any]:
    """Push one scope; scope_kind is "placement", "view", "namespace" or "config"."""
    token = _scopes.set(_scopes.get() + ((scope_kind, value),))
    try:
        yield value
    finally:
        _scopes.reset(token)


def innermost(scope_kind: str) -> Any:
    """The value of the innermost open scope of a kind, or None."""
    for open_kind, value in reversed(_scopes.get()):
        if open_kind == scope_kind:
            return value
    return None


def all_open(scope_kind: str) -> list[Any]:
    """Values of the open scopes of a kind, outermost first."""
    return [value for open_kind, value in _scopes.get() if open_kind == scope_kind]


def value_dependent(what: str) -> None:
    """Restart a captured job op by op; operators with value-dependent output shapes call this."""
    current = _trace.get()
    if current is not None and current.captured:
        raise NeedsEager(what)
