"""Five functions that OneFlow's tests use to see values and errors cross the language border."""

from __future__ import annotations


class A:
    """A value that can be changed in place."""

    def __init__(self) -> None:
        self.x = 0

    def get_x(self) -> int:
        return self.x

    def inc_x(self) -> None:
        self.x += 1


_singleton = A()


def get_singleton_a() -> A:
    return _singleton


def increase_x_of_a_if_not_none(a: A | None) -> A | None:
    if a is not None:
        a.inc_x()
    return a


def increase_if_not_none(x: int | None) -> int | None:
    return None if x is None else x + 1


def divide(x: float, y: float) -> float:
    """x / y; RuntimeError when y is zero."""
    if y == 0:
        raise RuntimeError(f"divide: {x} / {y}")
    return x / y


def throw_if_zero(x: int) -> None:
    """RuntimeError when x is zero."""
    if x == 0:
        raise RuntimeError(f"throw_if_zero: {x}")
