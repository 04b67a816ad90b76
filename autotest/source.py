"""The sources of random choices.

Every choice is one integer from the current source. Inside an `autotest` case the source is Hypothesis, which
stores, replays and shrinks the choices. Outside a case the source is a NumPy generator. Zero is always the
simplest choice.
"""

from __future__ import annotations

import datetime
import functools
import secrets
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import config

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


FINE = 1 << 16  # steps of a real number between its bounds


class FreeSource:
    """Choices outside a case: plain random numbers."""

    def live(self) -> Source:
        return self

    def __init__(self, seed: int | tuple[int, ...] | None = None) -> None:
        self.rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """low <= number < high"""
        return int(self.rng.integers(low, high))

    def restart(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def content_seed(self) -> int:
        return int(self.rng.integers(SIMPLE, FINE))


SIMPLE = 8  # content seeds below this name a simple filling (see tensors.fill), the others a random one


class HypothesisSource:
    """Choices of one case, from a Hypothesis `data` object."""

    def __init__(self, data: Any) -> None:
        self._draw = _sampler(data)
        self.closed = False

    def live(self) -> Source:
        """This source, or the free one once its case is over."""
        return _stack[0] if self.closed else self

    def integer(self, low: int, high: int) -> int:
        if high <= low:
            raise ValueError(
                f"random({low}, {high}) is an empty range: the upper bound is exclusive and must be larger"
            )
        return self._draw(low, high - 1)

    def content_seed(self) -> int:
        """Return the seed of a tensor's values: below SIMPLE a simple filling, otherwise random values of
        this seed.
        """
        return self._draw(0, FINE - 1)


def _sampler(data: Any) -> Callable[[int, int], int]:
    """Return draw(low, high) of `data`; from its conjecture data if this version has it, which is ten times
    faster.
    """
    quick = getattr(getattr(data, "conjecture_data", None), "draw_integer", None)
    if quick is not None:
        return quick
    return lambda low, high: data.draw(_integers(low, high))


@functools.cache
def _integers(low: int, high: int) -> SearchStrategy[int]:
    from hypothesis import strategies

    return strategies.integers(low, high)


class SeededSource(FreeSource):
    """Choices of one case without Hypothesis: random numbers of a seed; nothing shrinks."""

    closed = False

    def live(self) -> Source:
        return _stack[0] if self.closed else self


SourceOfCase = HypothesisSource | SeededSource
Source = FreeSource | HypothesisSource
_free = FreeSource()
_stack: list[Source] = [_free]


def current() -> Source:
    """Return the source in use."""
    return _stack[-1]


class drawing_from:
    """with drawing_from(source): every generator samples from it."""

    def __init__(self, source: SourceOfCase) -> None:
        self.source = source

    def __enter__(self) -> SourceOfCase:
        _stack.append(self.source)
        return self.source

    def __exit__(self, *exc: object) -> None:
        _stack.pop()
        self.source.closed = True


def seed_of(test_id: str) -> int:
    """Return ONEFLOW_TEST_SEED ("date" is a number like 20261129); without it, a fixed seed in CI and with
    several ranks, and a new one otherwise.
    """
    requested = config.get("ONEFLOW_TEST_SEED")
    if requested == "date":
        return int(datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d"))
    if requested:
        return config.get_int("ONEFLOW_TEST_SEED")
    if config.is_set("CI") or config.several_ranks():
        return zlib.crc32(test_id.encode())
    return secrets.randbelow(1 << 31)


def agree_over_ranks(test_id: str) -> None:
    """With several ranks, seed the choices outside a case by the test, so that every rank makes the same
    ones.
    """
    if config.several_ranks():
        _free.restart(seed_of(test_id))
