"""Whether a build function runs under capture in this thread, and how to step outside of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch

STATE = threading.local()

# The scope of the module that runs, as the front end reports it (`nn/graph/scopes.py`); None: no module runs.
REPORTED_SCOPE: ContextVar[Any] = ContextVar("scope", default=None)


def capturing() -> bool:
    """True while a build function runs under capture in this thread."""
    return getattr(STATE, "recorder", None) is not None


def in_build() -> bool:
    """True while a build function runs in this thread, under capture or in eager mode."""
    return capturing() or getattr(STATE, "builds_eagerly", False)


@contextlib.contextmanager
def building_eagerly() -> Iterator[None]:
    """A build function runs in eager mode inside the block."""
    outer = getattr(STATE, "builds_eagerly", False)
    STATE.builds_eagerly = True
    try:
        yield
    finally:
        STATE.builds_eagerly = outer


@contextlib.contextmanager
def reporting_scope(scope: object) -> Iterator[None]:
    """`scope` is the one that the front end reports inside the block."""
    outer = REPORTED_SCOPE.set(scope)
    try:
        yield
    finally:
        REPORTED_SCOPE.reset(outer)


def is_captured_state(tensor: torch.Tensor) -> bool:
    """Whether build() runs under capture in this thread and the tensor is a parameter or buffer of the
    modules of its graph.
    """
    entry = STATE.state.entry(tensor) if capturing() else None
    return entry is not None and entry.in_module


@contextlib.contextmanager
def outside_capture() -> Iterator[None]:
    """Inside build(): run ordinary eager code on real tensors, for example to create a variable."""
    from torch.utils._python_dispatch import _disable_current_modes

    recorder = getattr(STATE, "recorder", None)
    STATE.recorder = None
    try:
        with (
            _disable_current_modes(),
            torch._C.DisableTorchFunction(),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
        ):
            yield
    finally:
        STATE.recorder = recorder
