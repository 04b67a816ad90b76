"""oneflow.to_global and oneflow.to_local, for one tensor or a container of tensors."""

from __future__ import annotations

from .to_global import to_global as _to_global
from .to_local import to_local as _to_local


def to_global(input, placement=None, sbp=None, **kwargs):
    """A tensor, or a nested container of tensors, made global: `oneflow.utils.global_view.to_global`.

    The global shape follows from the shards and `sbp`; dtypes stay.
    """
    return _to_global(input, placement, sbp, **kwargs)


def to_local(input, *, copy=False):
    """A global tensor, or a nested container of them, as local tensors:
    `oneflow.utils.global_view.to_local`.

    Each result has the shape of its shard; dtypes stay.
    """
    return _to_local(input, copy=copy)
