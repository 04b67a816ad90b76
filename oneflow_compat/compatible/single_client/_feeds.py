"""Tensors that a job gets from the host in each call: data readers, seeded random values."""

from __future__ import annotations

from ._update import outside_capture


class ShapeChanged(Exception):
    """A reader gave a batch of another shape than the program was captured for."""


class Feed:
    """A tensor that is an input of the captured program, and the function giving its next value."""

    def __init__(self, buffer, pull):
        self.buffer, self.pull, self.fresh = buffer, pull, True

    def refill(self):
        if self.fresh:  # the value pulled while the job was defined serves the first call
            self.fresh = False
            return
        value = self.pull()
        if value.shape != self.buffer.shape:
            raise ShapeChanged(f"{tuple(self.buffer.shape)} to {tuple(value.shape)}")
        self.buffer.copy_(value)


def feed(trace, pull, device):
    """Return this call's value of pull(), a tensor. In a captured job `pull` runs before each call."""
    with outside_capture(trace):
        value = pull().to(device)
    new_feed = Feed(value, pull)
    trace.feeds.append(new_feed)
    return value
