"""oneflow.to_global and oneflow.to_local, for one tensor or a container of tensors."""

from __future__ import annotations


def to_global(input, placement=None, sbp=None, **kwargs):
    """A tensor, or a nested container of tensors, made global: `oneflow.utils.global_view.to_global`."""
    from . import to_global

    return to_global(input, placement, sbp, **kwargs)


def to_local(input, *, copy=False):
    """A global tensor, or a nested container of them, as local tensors:
    `oneflow.utils.global_view.to_local`.
    """
    from . import to_local

    return to_local(input, copy=copy)
