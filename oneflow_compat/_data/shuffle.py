"""The random engines of the C++ standard library, which decide the order of OneFlow's readers.

Orders agree with real OneFlow 0.9.0 for the same seed (tests/golden/ofrecord.json).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

_MASK = 0xFFFFFFFF
_SHIFTS = ((623, 11), (68, 7), (39, 5), (7, 3))  # (smallest count, the value t of the C++ standard)


def seed_sequence(values: Sequence[int], count: int) -> list[int]:
    """Return `count` 32-bit numbers derived from `values` (std::seed_seq::generate)."""
    state, size = [0x8B8B8B8B] * count, len(values)
    t = next((t for least, t in _SHIFTS if count >= least), (count - 1) // 2)
    p = (count - t) // 2
    q = p + t
    rounds = max(size + 1, count)
    for k in range(rounds):
        mixed = state[k % count] ^ state[(k + p) % count] ^ state[(k - 1) % count]
        mixed_once = 1664525 * (mixed ^ mixed >> 27) & _MASK
        second = mixed_once + (size if k == 0 else k % count + (values[k - 1] if k <= size else 0)) & _MASK
        state[(k + p) % count] = state[(k + p) % count] + mixed_once & _MASK
        state[(k + q) % count] = state[(k + q) % count] + second & _MASK
        state[k % count] = second
    for k in range(rounds, rounds + count):
        mixed = state[k % count] + state[(k + p) % count] + state[(k - 1) % count] & _MASK
        mixed_once = 1566083941 * (mixed ^ mixed >> 27) & _MASK
        second = mixed_once - k % count & _MASK
        state[(k + p) % count] ^= mixed_once
        state[(k + q) % count] ^= second
        state[k % count] = second
    return state


class Minstd:
    """std::minstd_rand0, seeded through a seed sequence. The shuffle buffer and the crops use it."""

    _M = 2147483647

    def __init__(self, *seeds: int) -> None:
        self._x = seed_sequence([s & _MASK for s in seeds], 4)[3] % self._M or 1

    def __call__(self) -> int:
        self._x = self._x * 16807 % self._M
        return self._x

    def below(self, n: int) -> int:
        """Return a number in 0..n-1 (std::uniform_int_distribution)."""
        scale = (self._M - 2) // n
        while True:
            r = self() - 1
            if r < n * scale:
                return r // scale


class MersenneTwister:
    """std::mt19937."""

    def __init__(self, *seeds: int, sequence: bool = False) -> None:
        self._random = np.random.RandomState(0)
        self._words: list[int] = []
        if sequence:
            words = seed_sequence([s & _MASK for s in seeds], 624)
            if words[0] & 0x80000000 == 0 and not any(words[1:]):
                words[0] = 0x80000000
            state: Any = ("MT19937", np.array(words, np.uint32), 624)
            self._random.set_state(state)
        else:
            self._random.seed(seeds[0])
        self._uint32 = np.uint32

    def __call__(self) -> int:
        if not self._words:
            self._words = self._random.randint(0, 1 << 32, size=1 << 12, dtype=self._uint32)[::-1].tolist()
        return self._words.pop()

    def below(self, n: int) -> int:
        """Return a number in 0..n-1 (std::uniform_int_distribution, by scaling)."""
        scale = _MASK // n
        while True:
            r = self()
            if r < n * scale:
                return r // scale

    def shuffle(self, items: list[Any]) -> None:
        """Shuffle in place, as std::shuffle does: one random number gives two positions if it is large
        enough.
        """
        i = 1
        if len(items) >= 1 << 16:
            for i in range(1, len(items)):
                j = self.below(i + 1)
                items[i], items[j] = items[j], items[i]
            return
        if len(items) > 1 and len(items) % 2 == 0:
            j = self.below(2)
            items[1], items[j] = items[j], items[1]
            i = 2
        while i < len(items):
            x = self.below((i + 1) * (i + 2))
            for j in (x // (i + 2), x % (i + 2)):
                items[i], items[j] = items[j], items[i]
                i += 1


class ShuffleBuffer:
    """Yield the items of a stream in random order. Each step takes a random item of the buffer and puts the
    next item of the stream in its slot.
    """

    def __init__(self, stream: Iterator[Any], size: int, seed: int) -> None:
        self._stream, self._engine = stream, Minstd(seed)
        self._buffer = [next(stream) for _ in range(size)]

    def __iter__(self) -> ShuffleBuffer:
        return self

    def __next__(self) -> Any:
        at = self._engine.below(len(self._buffer))
        item, self._buffer[at] = self._buffer[at], next(self._stream)
        return item


def epoch_shuffle(items: list[Any], epoch: int) -> None:
    """Shuffle a list of files in place, as OneFlow does for an epoch."""
    MersenneTwister(524287 + epoch).shuffle(items)


def fresh_seed() -> int:
    """Return a seed from torch's default generator, so that manual_seed makes readers repeatable."""
    return int(torch.randint(0, 1 << 31, (1,)).item())
