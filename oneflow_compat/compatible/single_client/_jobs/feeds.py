"""Tensors that a job gets from the host in each call: data readers, seeded random values."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import context as _context
from .update import outside_capture


class ShapeChanged(Exception):
    """A reader gave a batch of another shape than the program was captured for."""


class Feed:
    """A tensor that is an input of the captured program, and the function giving its next value."""

    def __init__(self, buffer: torch.Tensor, pull: Callable[..., Any]) -> None:
        self.buffer, self.pull, self.fresh = buffer, pull, True

    def refill(self) -> None:
        if self.fresh:  # the value pulled while the job was defined serves the first call
            self.fresh = False
            return
        value = self.pull()
        if value.shape != self.buffer.shape:
            raise ShapeChanged(f"{tuple(self.buffer.shape)} to {tuple(value.shape)}")
        self.buffer.copy_(value)


def feed(trace: Any, pull: Callable[..., Any], device: torch.device) -> torch.Tensor:
    """Return this call's value of pull(), a tensor. In a captured job `pull` runs before each call."""
    with outside_capture(trace):
        value = pull().to(device)
    new_feed = Feed(value, pull)
    trace.feeds.append(new_feed)
    return value


# ------------- Random values with a seed inside a job: a stream per seed that continues from call to call


def seeded_uniform(shape: Sequence[int], device: torch.device, seed: int) -> torch.Tensor:
    """Uniform random values of a separate generator.

    In a captured job they are a feed filled before each call.
    """
    trace = _context.trace()
    if trace is None:
        return torch.rand(tuple(shape), generator=torch.Generator().manual_seed(seed)).to(device)

    generator = generator_of(trace, ("seed", len(trace.feeds), seed), seed)
    return feed(trace, lambda: torch.rand(tuple(shape), generator=generator), device)


def generator_of(trace: Any, key: Sequence[Any], seed: int) -> Any:
    """The job's generator under this key, created once.

    It is created outside the capture. Inside, it would restart at every call.
    """
    if key not in trace.job.pipeline:
        with outside_capture(trace):
            trace.job.pipeline[key] = torch.Generator().manual_seed(seed)
    return trace.job.pipeline[key]
