"""Where a generator's choices come from.

Every choice is one whole number drawn from the current source, so that inside an `autotest` case
Hypothesis sees, stores, replays and shrinks them; outside a case they come from a NumPy generator.
Zero is always the simplest choice.
"""
from __future__ import annotations

import functools
import zlib

import numpy as np

from . import config

FINE = 1 << 16  # steps of a real number between its bounds


class FreeSource:
    """Choices outside a case: plain random numbers."""

    def live(self):
        return self

    def __init__(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """low <= number < high"""
        return int(self.rng.integers(low, high))

    def restart(self, seed):
        self.rng = np.random.default_rng(seed)

    def content_seed(self) -> int:
        return int(self.rng.integers(SIMPLE, FINE))


SIMPLE = 8  # content seeds below this name a simple filling (see tensors.fill), the others a random one


class HypothesisSource:
    """Choices of one case, drawn from a Hypothesis `data` object."""

    def __init__(self, data):
        self._draw = _drawer(data)
        self.closed = False

    def live(self):
        """This source, or the free one once its case is over."""
        return _stack[0] if self.closed else self

    def integer(self, low: int, high: int) -> int:
        if high <= low:
            raise ValueError(f"random({low}, {high}) is an empty range: the upper bound is exclusive and must be larger")
        return self._draw(low, high - 1)

    def content_seed(self) -> int:
        """What a tensor is filled with: below SIMPLE a simple filling, else random numbers of this seed."""
        return self._draw(0, FINE - 1)


def _drawer(data):
    """draw(low, high) of `data`; straight from its conjecture data where this version has it (ten times faster)."""
    quick = getattr(getattr(data, "conjecture_data", None), "draw_integer", None)
    if quick is not None:
        return quick
    return lambda low, high: data.draw(_integers(low, high))


@functools.lru_cache(maxsize=None)
def _integers(low, high):
    from hypothesis import strategies

    return strategies.integers(low, high)


class SeededSource(FreeSource):
    """Choices of one case where Hypothesis is not installed: random numbers of a seed, nothing shrinks."""

    closed = False

    def live(self):
        return _stack[0] if self.closed else self


_stack = [FreeSource()]


def current():
    return _stack[-1]


class drawing_from:
    """with drawing_from(source): every generator draws from it."""

    def __init__(self, source):
        self.source = source

    def __enter__(self):
        _stack.append(self.source)
        return self.source

    def __exit__(self, *exc):
        _stack.pop()
        self.source.closed = True


def seed_of(test_id) -> int:
    """ONEFLOW_TEST_SEED; without it the same number every time in CI and on several ranks, and a new one elsewhere."""
    text = config.get("ONEFLOW_TEST_SEED")
    if text:
        return config.get_int("ONEFLOW_TEST_SEED")
    if config.is_set("CI") or config.several_ranks():
        return zlib.crc32(test_id.encode())
    return int(np.random.SeedSequence().entropy % (1 << 31))


def agree_over_ranks(test_id):
    """With several ranks, choices outside a case are from here on those of the test, the same on every rank."""
    if config.several_ranks():
        _stack[0].restart(seed_of(test_id))
