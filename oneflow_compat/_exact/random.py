"""OneFlow 0.9's CPU random stream: one sequential MT19937 per generator, and its distributions.

Inside nn.Graph, and on other devices, torch's generators stay. A stream starts when a torch generator is
first used or was seeded since: it takes the generator's
initial_seed(). Each use also draws one number from the torch generator, so that a new seed shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Stream:
    def __init__(self, seed: int) -> None:
        self._source, self._left = np.random.RandomState(seed % 2**32), np.empty(0, np.uint64)

    def raw(self, n: int) -> np.ndarray:
        """The next n 32-bit words."""
        if n > self._left.size:
            self._left = np.concatenate(
                [
                    self._left,
                    self._source.randint(0, 2**32, size=n - self._left.size, dtype=np.uint32).astype(
                        np.uint64
                    ),
                ]
            )
        out, self._left = self._left[:n], self._left[n:]
        return out

    def push_back(self, words: np.ndarray) -> None:
        self._left = np.concatenate([words, self._left])

    def uniform(self, n: int, double: bool) -> np.ndarray:
        """n numbers in [0, 1)."""
        if not double:
            return (self.raw(n).astype(np.float32) / np.float32(2**32)).astype(np.float64)
        words = self.raw(2 * n).astype(np.float64)
        return (words[0::2] + words[1::2] * 2.0**32) / 2.0**64

    def normal(self, n: int, double: bool) -> np.ndarray:
        """n standard normal numbers by Marsaglia's polar method, in pairs; the spare of an odd n
        is dropped.
        """
        out, width = [], 4 if double else 2
        pairs = (n + 1) // 2
        while pairs:
            words = self.raw(width * (pairs + pairs // 3 + 8))
            self.push_back(words)
            u = 2 * self.uniform(words.size // (width // 2), double) - 1
            x, y = u[0::2], u[1::2]
            r = x * x + y * y
            good = np.flatnonzero((r <= 1) & (r != 0))[:pairs]
            used = int(good[-1]) + 1 if good.size == pairs else x.size
            self.push_back(words[width * used :])
            scale = np.sqrt(-2 * np.log(r[good]) / r[good])
            out.append(np.stack([y[good] * scale, x[good] * scale], 1).ravel())
            pairs -= good.size
        return np.concatenate(out)[:n] if out else np.empty(0)

    def below(self, bound: int) -> int:
        """One whole number in [0, bound), as libstdc++'s uniform_int_distribution."""
        scaling = (2**32 - 1) // bound
        while True:
            word = int(self.raw(1)[0])
            if word < bound * scaling:
                return word // scaling

    def shuffled(self, n: int) -> list[int]:
        """0 .. n-1 in the order of libstdc++'s std::shuffle."""
        out, i = list(range(n)), 1
        if n * n <= 2**32 - 1:
            if n % 2 == 0 and n:
                j = self.below(2)
                out[1], out[j] = out[j], out[1]
                i = 2
            while i < n:
                a, b = divmod(self.below((i + 1) * (i + 2)), i + 2)
                out[i], out[a] = out[a], out[i]
                out[i + 1], out[b] = out[b], out[i + 1]
                i += 2
            return out
        for i in range(1, n):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


# id(generator) -> (generator, stream, state); torch 2.11's generators take no weak reference
_streams: dict[int, tuple[torch.Generator, Stream, torch.Tensor]] = {}
_default: list[Any] = [None, None]


def stream(generator: torch.Generator | None = None) -> Stream:
    """The stream that goes with a torch CPU generator (None: the default one)."""
    source = torch.default_generator if generator is None else generator
    kept: Any
    state: Any
    kept, state = _default if generator is None else _streams.get(id(generator), (None, None, None))[1:]
    if kept is None or not torch.equal(state, source.get_state()):
        kept = Stream(source.initial_seed())
    torch.empty(1).random_(generator=source)
    if generator is None:
        _default[:] = [kept, source.get_state()]
    else:
        _streams[id(generator)] = (generator, kept, source.get_state())
    return kept


def _fill(tensor: torch.Tensor, values: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)).reshape(tensor.shape))


def _on_cpu(t: torch.Tensor) -> bool:
    return t.device.type == "cpu" and t.is_floating_point() and not t.is_lazy


def _capturing() -> bool:
    """Return True while nn.Graph captures. Its programs sample from torch's generators."""
    return torch.empty(0).is_lazy


def uniform_(original: Callable[..., Any]) -> Callable[..., Any]:
    def uniform_(
        self: torch.Tensor,
        a: float = 0,
        b: float = 1,
        *,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        if kwargs or not _on_cpu(self):
            return original(self, a, b, generator=generator, **kwargs)
        return _fill(self, stream(generator).uniform(self.numel(), self.dtype is torch.float64) * (b - a) + a)

    return uniform_


def normal_(original: Callable[..., Any]) -> Callable[..., Any]:
    def normal_(
        self: torch.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: torch.Generator | None = None
    ) -> torch.Tensor:
        if not _on_cpu(self):
            return original(self, mean, std, generator=generator)
        return _fill(self, stream(generator).normal(self.numel(), self.dtype is torch.float64) * std + mean)

    return normal_


def trunc_normal_(original: Callable[..., Any]) -> Callable[..., Any]:
    """Clamped to [a, b], not redrawn."""

    def trunc_normal_(
        tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
    ) -> torch.Tensor:
        with torch.no_grad():
            return tensor.normal_(mean, std).clamp_(a, b)

    return trunc_normal_


def _made(original: Callable[..., Any], draw: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Make an empty tensor the way `original` would, then draw into it."""

    def call(
        *args: Any, generator: torch.Generator | None = None, requires_grad: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        if _capturing():
            return original(
                *args,
                requires_grad=requires_grad,
                **kwargs,
                **({} if generator is None else {"generator": generator}),
            )
        probe = (
            original(*args, generator=generator, **kwargs)
            if generator is not None
            else original(*args, **kwargs)
        )
        if probe.device.type != "cpu" or probe.is_global:
            return probe.requires_grad_(requires_grad)
        return draw(probe, generator, args, kwargs).requires_grad_(requires_grad)

    return functools.wraps(original, updated=())(call)


def _keeping_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, leaving torch's default generator as it was (its draw is thrown away)."""

    def call(*args: Any, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
        if _capturing():
            return original(*args, **kwargs, **({} if generator is None else {"generator": generator}))
        source = torch.default_generator if generator is None else generator
        state = source.get_state()
        try:
            return (
                original(*args, **kwargs)
                if generator is None
                else original(*args, generator=generator, **kwargs)
            )
        finally:
            source.set_state(state)

    return functools.wraps(original, updated=())(call)


def rand(original: Callable[..., Any]) -> Callable[..., Any]:
    return _made(_keeping_state(original), lambda t, g, a, k: t.uniform_(0, 1, generator=g))


def randn(original: Callable[..., Any]) -> Callable[..., Any]:
    return _made(_keeping_state(original), lambda t, g, a, k: t.normal_(0.0, 1.0, generator=g))


def normal(original: Callable[..., Any]) -> Callable[..., Any]:
    def draw(
        t: torch.Tensor, g: torch.Generator | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        mean, std = (args + tuple(kwargs[n] for n in ("mean", "std")[len(args) :] if n in kwargs))[:2]
        return t.normal_(mean, std, generator=g)

    sampler = _made(_keeping_state(original), draw)
    return functools.wraps(original, updated=())(
        lambda *a, **k: original(*a, **k) if any(isinstance(v, torch.Tensor) for v in a) else sampler(*a, **k)
    )


def randint(original: Callable[..., Any]) -> Callable[..., Any]:
    def draw(
        t: torch.Tensor, g: torch.Generator | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        values = [v for v in args if isinstance(v, int)]
        low, high = kwargs.get("low", 0), kwargs.get("high")
        if values:
            low, high = (
                (values[0], values[1] if len(values) > 1 else high)
                if len(values) > 1 or high is not None
                else (0, values[0])
            )
        return _fill(t, np.floor(stream(g).uniform(t.numel(), False) * (high - low)) + low)

    return _made(_keeping_state(original), draw)


def randperm(original: Callable[..., Any]) -> Callable[..., Any]:
    return _made(
        _keeping_state(original),
        lambda t, g, a, k: _fill(t, np.array(stream(g).shuffled(t.numel()), dtype=np.int64)),
    )


def bernoulli(original: Callable[..., Any]) -> Callable[..., Any]:
    def bernoulli(
        input: torch.Tensor,
        p: float | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
        inplace: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        if _capturing() or input.device.type != "cpu":
            return original(input, p, dtype=dtype, generator=generator, inplace=inplace, **kwargs)
        chance = input.detach().double().numpy().ravel() if p is None else float(p)
        y = torch.empty(input.shape)
        _fill(y, (stream(generator).uniform(input.numel(), True) < chance).astype(np.float64))
        return input.copy_(y) if inplace else y.to(dtype)

    return bernoulli


def dropout(original: Callable[..., Any]) -> Callable[..., Any]:
    """Kept where the uniform number is above p."""

    def dropout(
        x: Any = None,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        generator: torch.Generator | None = None,
        *,
        addend: torch.Tensor | None = None,
        input: Any = None,
    ) -> torch.Tensor:
        x = input if x is None else x
        if not training or p == 0 or x.device.type != "cpu" or _capturing():
            return original(x, p, training, inplace, generator, addend=addend)
        keep = (
            torch.from_numpy((stream(generator).uniform(x.numel(), False) > p).astype(np.float64))
            .reshape(x.shape)
            .to(x.dtype)
        )
        y = x * keep * (1 / (1 - p) if p < 1 else 0.0)
        y = y if addend is None else y + addend
        return x.copy_(y) if inplace else y

    return dropout
