"""oneflow.to_global and oneflow.to_local, for one tensor or a container of tensors."""

from __future__ import annotations


def to_global(input, placement=None, sbp=None, **kwargs):
    """Make a tensor or a nested container global, by `oneflow.utils.global_view.to_global`."""
    from ..utils.global_view import to_global

    return to_global(input, placement, sbp, **kwargs)


def to_local(input, *, copy=False):
    """Make a global tensor or a nested container local, by `oneflow.utils.global_view.to_local`."""
    from ..utils.global_view import to_local

    return to_local(input, copy=copy)
