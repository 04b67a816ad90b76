"""The values that a graph takes as arguments and returns as results."""

import enum
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import TreeSpec

from ..errors import KEEP_PADDED, GraphTypeError
from ..program.pytree import paths
from ..program.symbolic import SYMBOLIC_NUMBERS

_PLAIN = (
    int,
    float,
    bool,
    str,
    bytes,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    slice,
    type(Ellipsis),
    enum.Enum,
    np.generic,
)


def check_leaves(flat: Iterable[Any], name: Callable[[int], str], also: tuple[type, ...] = ()) -> None:
    """Raise unless every leaf is a tensor, a plain Python value, or of one of the classes in `also`.

    An error calls the leaf name(index).
    """
    for index, leaf in enumerate(flat):
        if not isinstance(leaf, (torch.Tensor, *_PLAIN, *SYMBOLIC_NUMBERS, *also)):
            type_name = (
                type(leaf).__qualname__
                if type(leaf).__module__ == "builtins"
                else f"{type(leaf).__module__}.{type(leaf).__qualname__}"
            )
            raise GraphTypeError(
                f"the {name(index)} of build() has the type {type_name}, which a graph cannot take",
                "Use tensors, numbers, strings, None, and nested list, tuple or dict of them (numpy:"
                " flow.from_numpy(x)).",
            )
        if isinstance(leaf, torch.Tensor) and leaf.is_nested:
            raise GraphTypeError(
                f"the {name(index)} of build() is a nested tensor, which a graph cannot take", KEEP_PADDED
            )


def leaf_name(spec: TreeSpec, index: int) -> str:
    """Return a readable path of a flat leaf, such as [0]['x']."""
    return "".join(f"[{key!r}]" for key in paths(spec)[index])
