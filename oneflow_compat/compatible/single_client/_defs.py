"""Declarations of inputs in the oldest style: `def job(x=flow.FixedTensorDef((2, 3)))`."""

from __future__ import annotations

from ._orders import takes_older_orders
from .typing import _ListListPlaceholder, _ListPlaceholder, _Placeholder


@takes_older_orders("FixedTensorDef")
def FixedTensorDef(shape, dtype=None, batch_axis=None, name=None):
    """FixedTensorDef(shape, dtype=flow.float): one array of exactly this shape."""
    return _Placeholder(shape, dtype, batch_axis, name)


def MirroredTensorDef(*args, **kwargs):
    """MirroredTensorDef(shape, dtype=flow.float): a list with one array per device.

    Each array is at most of this shape.
    """
    return _ListPlaceholder(*args, **kwargs)


def MirroredTensorListDef(*args, **kwargs):
    """MirroredTensorListDef(shape, dtype=flow.float): a list per device of arrays."""
    return _ListListPlaceholder(*args, **kwargs)
