"""Whether a build function runs under capture in this thread, and how to step outside of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

STATE = threading.local()


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
