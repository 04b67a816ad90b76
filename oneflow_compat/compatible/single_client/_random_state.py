"""Random numbers with a seed inside a job: a stream per seed that goes on from call to call."""
from __future__ import annotations

import torch

from . import _context


def seeded_uniform(shape, device, seed):
    """Uniform numbers of a generator of its own; in a captured job they are a feed filled before each call."""
    trace = _context.trace()
    if trace is None:
        return torch.rand(tuple(shape), generator=torch.Generator().manual_seed(seed)).to(device)
    from ._feeds import feed

    key = ("seed", len(trace.feeds), seed)
    generator = trace.job.pipeline.get(key)
    if generator is None:
        generator = trace.job.pipeline[key] = torch.Generator().manual_seed(seed)
    return feed(trace, lambda: torch.rand(tuple(shape), generator=generator), device)
