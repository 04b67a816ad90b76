"""flow.advanced: one blob as several per-device parts. With one device there is one part."""

from __future__ import annotations

import torch


def distribute_clone(x, name=None):
    return (x,)


def distribute_add(xs, name=None):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def distribute_split(x, axis=0, name=None):
    return (x,)


def distribute_concat(xs, axis=0, name=None):
    return torch.cat(list(xs), axis)


def distribute_map(xs, f, axis=0):
    """f on each device's part of the blobs, joined again along the axis."""
    single = isinstance(xs, torch.Tensor)
    out = f(xs) if single else f(*xs)
    return out
