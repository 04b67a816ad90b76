"""Random values with a seed inside a job: a stream per seed that continues from call to call."""

from __future__ import annotations

import torch

from . import _context
from ._feeds import feed
from ._update import outside_capture


def seeded_uniform(shape, device, seed):
    """Uniform random values of a separate generator.

    In a captured job they are a feed filled before each call.
    """
    trace = _context.trace()
    if trace is None:
        return torch.rand(tuple(shape), generator=torch.Generator().manual_seed(seed)).to(device)

    generator = generator_of(trace, ("seed", len(trace.feeds), seed), seed)
    return feed(trace, lambda: torch.rand(tuple(shape), generator=generator), device)


def generator_of(trace, key, seed):
    """The job's generator under this key, created once.

    It is created outside the capture. Inside, it would restart at every call.
    """
    if key not in trace.job.pipeline:
        with outside_capture(trace):
            trace.job.pipeline[key] = torch.Generator().manual_seed(seed)
    return trace.job.pipeline[key]
