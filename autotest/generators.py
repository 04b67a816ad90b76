"""Generators: values that are sampled once per case, at their first use.

A generator is an expression: `random(1, 6).to(int) * 2 | nothing()`. `.value()` samples and keeps the value.
A dual call samples its generators; the callee's annotation gives the type if nobody called `.to(type)`.
A `random()` without a type is None.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import source
from .source import FINE

if TYPE_CHECKING:
    from .source import Source

py_tuple: Any = tuple
NoneType = type(None)


class Nothing:
    """The value of `nothing()`: the argument is left out."""

    def __repr__(self) -> str:
        return "nothing"


class generator:
    """Base of all generators; a subclass samples its value in `_calc_value`."""

    def __init__(self, children: Iterable[object]) -> None:
        self.children = [c for c in children if isinstance(c, generator)]
        self._value = None
        self._has_value = False
        self._source = source.current()  # a generator made outside a case is not a choice of the case

    @property
    def choose(self) -> Source:
        """The source of this generator's choices."""
        return self._source.live()

    def _init(self) -> None:
        self._value, self._has_value = None, False
        for child in self.children:
            child._init()

    def eval(self) -> Any:
        """Forget the value and sample a new one."""
        self._init()
        return self.value()

    def value(self) -> Any:
        if not self._has_value:
            self._value = self._calc_value()
            self._has_value = True
        return self._value

    def _calc_value(self) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} does not define how its value is sampled (_calc_value)"
        )

    def size(self) -> int:
        """Return the number of alternatives that `|` counts this generator for."""
        return 1

    def to(self, annotation: Any) -> generator:
        """Request values of this type; the first request wins."""
        self._to(annotation)
        for child in self.children:
            child.to(annotation)
        return self

    def _to(self, annotation: Any) -> None:
        pass

    def __or__(self, other: object) -> generator:
        other = pack(other)
        return oneof(self, other, possibility=self.size() / (self.size() + other.size()))

    def __ror__(self, other: object) -> generator:
        return pack(other) | self

    def __add__(self, other: object) -> generator:
        return add(self, other)

    def __radd__(self, other: object) -> generator:
        return add(other, self)

    def __sub__(self, other: object) -> generator:
        return add(self, neg(other))

    def __rsub__(self, other: object) -> generator:
        return add(other, neg(self))

    def __mul__(self, other: object) -> generator:
        return mul(self, other)

    def __rmul__(self, other: object) -> generator:
        return mul(other, self)

    def __neg__(self) -> generator:
        return neg(self)


def pack(x: object) -> generator:
    """Return x if it is a generator, otherwise the constant x."""
    return x if isinstance(x, generator) else constant(x)


class constant(generator):
    """Always x."""

    def __init__(self, x: Any) -> None:
        super().__init__([])
        self.x = x

    def _calc_value(self) -> Any:
        return plain(self.x)


def plain(x: Any) -> Any:
    """Return a dual number as a number (if both sides agree on it), and anything else unchanged."""
    return x.plain() if hasattr(type(x), "__dual__") and isinstance(x._ref, (int, float)) else x


class nothing(generator):
    """The argument is left out."""

    def __init__(self) -> None:
        super().__init__([])

    def _calc_value(self) -> Any:
        return Nothing()


class add(generator):
    def __init__(self, a: object, b: object) -> None:
        self.a, self.b = pack(a), pack(b)
        super().__init__([self.a, self.b])

    def _calc_value(self) -> Any:
        return self.a.value() + self.b.value()


class mul(generator):
    def __init__(self, a: object, b: object) -> None:
        self.a, self.b = pack(a), pack(b)
        super().__init__([self.a, self.b])

    def _calc_value(self) -> Any:
        return self.a.value() * self.b.value()


class neg(generator):
    def __init__(self, a: object) -> None:
        self.a = pack(a)
        super().__init__([self.a])

    def _calc_value(self) -> Any:
        return -self.a.value()


class oneof(generator):
    """One of the arguments; `possibility` is the chance of the first of two, or one chance for each.

    ValueError without alternatives, and for chances that do not fit them.
    """

    def __init__(self, *args: object, possibility: float | list[float] | None = None) -> None:
        if not args:
            raise ValueError("oneof() needs at least one alternative")
        self.args = [pack(a) for a in args]
        super().__init__(self.args)
        if isinstance(possibility, (int, float)):
            if len(args) != 2:
                raise ValueError(
                    f"oneof(possibility=number) is for two alternatives, found {len(args)}; give a list of"
                    " chances"
                )
            possibility = [possibility, 1 - possibility]
        self.possibility = pack(possibility if possibility is not None else [1 / len(args)] * len(args))

    def _calc_value(self) -> Any:
        chances = list(self.possibility.value())
        if max(chances) - min(chances) < 1e-9:
            return self.args[self.choose.integer(0, len(self.args))].value()
        drawn, reached = self.choose.integer(0, FINE) / FINE, 0.0
        for alternative, chance in zip(self.args, chances):
            reached += chance
            if drawn < reached:
                return alternative.value()
        return self.args[-1].value()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value()(*args, **kwargs)

    def size(self) -> int:
        return sum(a.size() for a in self.args)


class tuple(generator):  # OneFlow's name; this module says py_tuple for the builtin
    """A tuple of the sampled arguments."""

    def __init__(self, *args: object) -> None:
        self.args = [pack(a) for a in args]
        super().__init__(self.args)

    def _calc_value(self) -> py_tuple:
        return py_tuple(a.value() for a in self.args)


class random(generator):
    """A number low <= x < high (int or float), a bool, or a list of them for the type of a tuple."""

    def __init__(self, low: object = 1, high: object = 6) -> None:
        self.low, self.high = pack(low), pack(high)
        super().__init__([self.low, self.high])
        self.annotation = None

    def _to(self, annotation: Any) -> None:
        if self.annotation is None:
            self.annotation = annotation

    def _calc_value(self) -> Any:
        return self._generate(self.annotation)

    def _generate(self, annotation: Any) -> Any:
        if annotation is None or annotation is NoneType:
            return None
        if annotation in (bool, int, float, complex):
            return self._generate_number(annotation)
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if args and (origin is typing.Union or type(annotation).__name__ == "UnionType"):
            return self._generate(args[self.choose.integer(0, len(args))])
        if args and origin in (py_tuple, list):
            if Ellipsis in args or origin is list:
                return [self._generate(args[0]) for _ in range(self.choose.integer(1, 4))]
            return [self._generate(a) for a in args]
        raise NotImplementedError(
            f"random() cannot sample a value of type {annotation!r}; call .to(int), .to(float) or .to(bool)"
            " on it"
        )

    def _generate_number(self, number_type: type) -> bool | int | float | complex:
        if number_type is bool:
            return bool(self.choose.integer(0, 2))
        if number_type is int:
            return self.choose.integer(int(self.low.value()), int(self.high.value()))
        low, high = float(self.low.value()), float(self.high.value())
        if number_type is float:
            return sample_real(self.choose, low, high)
        return complex(sample_real(self.choose, low, high), sample_real(self.choose, low, high))


def sample_real(choose: Source, low: float, high: float) -> float:
    return low + (high - low) * (choose.integer(0, FINE) / FINE)


def random_or_nothing(low: object, high: object) -> generator:
    """Return random(low, high), or leave the argument out (one time in three)."""
    return oneof(random(low, high), nothing(), possibility=2 / 3)


def random_bool() -> generator:
    """Return True or False."""
    return random().to(bool)


__all__ = ["random", "random_bool", "random_or_nothing", "oneof", "constant", "nothing"]
