"""to_global of nested containers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from ... import _processes
from ..._global.collectives import checking
from ..._global.placement import placement as Placement
from .global_utils import to_global_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...sbp import sbp as Sbp


def to_global(
    input: Any,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | Callable[..., Any] | None = None,
    warn_on_non_tensor_leaf: bool = True,
    **kwargs: Any,
) -> torch.Tensor | Any:
    """Make every tensor in `input` (nested list, tuple, dict, or one tensor) global; a state dict works, too.

    `sbp` is one sbp, a list of them, or a function that returns a tensor's sbp. The function takes `input`
    and the tensor, or the tensor alone. A rank that is not in `placement` may give None: it gets the
    structure that the placement's first rank has.

    The dtypes stay. TypeError for a module, and for arguments that are no tensors or containers.
    """
    if _processes.get_world_size() > 1:
        input = _structure_of_ranks(input, placement)
    if isinstance(input, torch.nn.Module):
        raise TypeError(
            "to_global() takes tensors and containers of them; call module.to_global(placement, sbp) for a"
            " module"
        )

    if callable(sbp) and not hasattr(sbp, "_kind"):
        try:
            inspect.signature(sbp).bind(input, None)
            sbp = functools.partial(sbp, input)
        except TypeError:
            pass

    def leaf(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return to_global_tensor(x, placement, sbp, **kwargs)
        if warn_on_non_tensor_leaf:
            warnings.warn(f"to_global: left a {type(x).__name__} as it is", stacklevel=3)
        return x

    return pytree.tree_map(leaf, input)


def _structure_of_ranks(input: Any, placement: Placement | None) -> Any:
    """Return `input`, or tensors without values in the structure of the placement's first rank for None."""
    with checking("global_view.to_global", sends=True) as request:
        request.send_integers(int(input is None))
    without = [rank for rank, (is_none,) in enumerate(request.integers) if is_none]
    if not without or len(without) == _processes.get_world_size():
        return input
    with checking("global_view.to_global", sends=True) as request:
        if not isinstance(placement, Placement):
            raise TypeError(
                f"to_global: placement must be an oneflow.placement, found {type(placement).__name__}"
            )
        inside = sorted(set(without) & set(placement.ranks.ravel().tolist()))
        if inside:
            raise ValueError(
                f"to_global: the ranks {inside} are in {placement!r} and gave None; only ranks outside of"
                " it may"
            )
        request.must_match(placement=placement)
        request.send_message(None if input is None else pytree.tree_map_only(torch.Tensor, _described, input))
    if input is not None:
        return input
    return pytree.tree_map_only(_Described, _without_values, request.messages[int(placement.ranks.flat[0])])


@dataclasses.dataclass(frozen=True)
class _Described:
    """The description of a tensor, sent without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool


def _described(tensor: torch.Tensor) -> _Described:
    if tensor.is_global:
        raise ValueError(
            "to_global: a rank gave None, and the tensors of another one are global already; every rank has"
            " such tensors"
        )
    return _Described(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)


def _without_values(described: _Described) -> torch.Tensor:
    return (
        torch.empty((), dtype=described.dtype).expand(described.shape).requires_grad_(described.requires_grad)
    )
