"""to_local of nested containers."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .global_utils import to_local_tensor


def to_local(input: Any, *, copy: bool = False) -> torch.Tensor | Any:
    """Replace every global tensor in `input` (nested list, tuple, dict, or one tensor) by its local shard.

    Each result has the shape of its shard; dtypes stay.
    """

    def leaf(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if x.is_global:
                return to_local_tensor(x, copy)
            warnings.warn("to_local: left a local tensor as it is", stacklevel=3)
        return x

    return pytree.tree_map(leaf, input)
