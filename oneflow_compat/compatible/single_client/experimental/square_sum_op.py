"""Sum of squares."""

from __future__ import annotations


def square_sum(x, name=None):
    """Sum of the squares of all elements, shape (1,)."""
    return x.square().sum().reshape(1)
