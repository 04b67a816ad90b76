"""flow.random: random blobs of job functions."""

import torch

from ._jobs import context as _context
from ._jobs import devices as _devices
from ._jobs.feeds import feed, generator_of, seeded_uniform
from ._jobs.host import HostBlob
from ._jobs.update import outside_capture


def gen_seed(seed: int | None = None) -> tuple[int, ...]:
    """Return (seed, True if the caller gave it).

    A seed of None is replaced by a value sampled from torch's generator.
    """
    if seed is not None:
        return int(seed), True

    with outside_capture(_context.trace()):
        return int(torch.randint(0, 2**31 - 1, ()).item()), False


def bernoulli(
    x: torch.Tensor, seed: int | None = None, dtype: torch.dtype | None = None, name: str = "Bernoulli"
) -> torch.Tensor:
    """1 with the probability given by each element of x, else 0; the dtype is x's unless told otherwise."""
    if seed is None:
        out = torch.rand(x.shape, device=x.device)
    else:
        out = seeded_uniform(x.shape, x.device, seed)
    return (out < x).to(dtype or x.dtype)


def shuffle(value: torch.Tensor, seed: int | None = None, name: str | None = None) -> torch.Tensor:
    """The rows in random order."""
    return value[generate_random_batch_permutation_indices(value, seed).long()]


def generate_random_batch_permutation_indices(
    value: torch.Tensor, seed: int | None = None, name: str | None = None
) -> torch.Tensor:
    """A random order of the rows of `value`, int32."""
    if seed is None:
        keys = torch.rand(value.shape[0], device=value.device)
    else:
        keys = seeded_uniform((value.shape[0],), value.device, seed)
    return torch.argsort(keys).to(torch.int32)


def coin_flip(
    batch_size: int = 1, seed: int | None = None, probability: float = 0.5, name: str = "CoinFlip"
) -> torch.Tensor:
    """int8 (batch_size,): 1 with the probability.

    Readers' images are mirrored by it (crop_mirror_normalize).
    """
    trace = _context.require_trace("flow.random.coin_flip")
    key = ("coin", trace.sources)
    trace.sources += 1
    generator = generator_of(trace, key, gen_seed(seed)[0])
    host = HostBlob(trace, lambda: (torch.rand(batch_size, generator=generator) < probability).to(torch.int8))
    tensor = feed(trace, host.value, _devices.current(trace.job))
    trace.host_values[id(tensor)] = host.value
    return tensor


CoinFlip = coin_flip
