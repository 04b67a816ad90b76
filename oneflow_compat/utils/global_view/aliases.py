"""oneflow.to_global and oneflow.to_local, for one tensor or a container of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .to_global import to_global as _to_global
from .to_local import to_local as _to_local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp


def to_global(
    input: Any,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | Callable[..., Any] | None = None,
    **kwargs: Any,
) -> torch.Tensor | Any:
    """A tensor, or a nested container of tensors, made global: `oneflow.utils.global_view.to_global`.

    The global shape follows from the shards and `sbp`; dtypes stay.
    """
    return _to_global(input, placement, sbp, **kwargs)


def to_local(input: Any, *, copy: bool = False) -> torch.Tensor | Any:
    """A global tensor, or a nested container of them, as local tensors:
    `oneflow.utils.global_view.to_local`.

    Each result has the shape of its shard; dtypes stay.
    """
    return _to_local(input, copy=copy)
