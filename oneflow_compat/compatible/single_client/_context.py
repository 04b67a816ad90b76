"""What is going on right now: the job being traced and the scopes the user opened."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar

_trace: ContextVar = ContextVar("oneflow_job_trace", default=None)
_scopes: ContextVar = ContextVar("oneflow_job_scopes", default=())


class NeedsEager(Exception):
    """An operator of the job has a result whose shape depends on values: the job runs op by op instead."""


def trace():
    """The trace of the job function that is being defined, None outside."""
    return _trace.get()


def require_trace(what: str):
    """The current trace; an error naming `what` outside a job function."""
    found = _trace.get()
    if found is None:
        raise RuntimeError(
            f"{what} was called outside a job function; call it inside a function decorated with"
            " @flow.global_function(...)"
        )
    return found


@contextmanager
def tracing(new):
    """Make `new` the current trace, with no scope of the outside visible but the job's own."""
    token, scopes = _trace.set(new), _scopes.set(())
    try:
        yield new
    finally:
        _scopes.reset(scopes)
        _trace.reset(token)


@contextmanager
def scope(kind: str, value):
    """Push one scope (kind: "placement", "view", "namespace", "config")."""
    token = _scopes.set(_scopes.get() + ((kind, value),))
    try:
        yield value
    finally:
        _scopes.reset(token)


def innermost(kind: str):
    """The value of the innermost open scope of a kind, or None."""
    for found, value in reversed(_scopes.get()):
        if found == kind:
            return value
    return None


def all_open(kind: str) -> list:
    """Values of the open scopes of a kind, outermost first."""
    return [value for found, value in _scopes.get() if found == kind]


def value_dependent(what: str):
    """Called by operators with value-dependent output shapes: a captured job starts over op by op."""
    found = _trace.get()
    if found is not None and found.captured:
        raise NeedsEager(what)
