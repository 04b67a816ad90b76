"""to_global of nested containers."""
from __future__ import annotations

import functools
import inspect
import warnings

import torch
from torch.utils import _pytree as pytree

from .global_utils import to_global_tensor


def to_global(input, placement=None, sbp=None, warn_on_non_tensor_leaf=True, **kwargs):
    """Every tensor in `input` (nested list, tuple, dict, or one tensor) made global; a module's state dict too.

    `sbp` is a rule, a list of rules, or a function that gives a tensor's rules: of `input` and the tensor, or of the tensor alone.
    """
    if isinstance(input, torch.nn.Module):
        raise TypeError("to_global() takes tensors and containers of them; call module.to_global(placement, sbp) for a module")

    if callable(sbp) and not hasattr(sbp, "_kind"):
        try:
            inspect.signature(sbp).bind(input, None)
            sbp = functools.partial(sbp, input)
        except TypeError:
            pass

    def leaf(x):
        if isinstance(x, torch.Tensor):
            return to_global_tensor(x, placement, sbp, **kwargs)
        if warn_on_non_tensor_leaf:
            warnings.warn(f"to_global: left a {type(x).__name__} as it is", stacklevel=3)
        return x

    return pytree.tree_map(leaf, input)
