"""Constant padding with 0 as the default value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ... import _bind
from ._same import SameAsTorch

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["ConstantPad1d", "ConstantPad2d", "ConstantPad3d"]


class ConstantPad1d(nn.ConstantPad1d, metaclass=SameAsTorch):
    """torch's ConstantPad1d; `value` is 0 by default."""

    _torch_class = nn.ConstantPad1d
    _blank = (0, 0)

    def __init__(self, padding: int | Sequence[int], value: float = 0) -> None:
        super().__init__(padding, value)


class ConstantPad2d(nn.ConstantPad2d, metaclass=SameAsTorch):
    """torch's ConstantPad2d; `value` is 0 by default."""

    _torch_class = nn.ConstantPad2d
    _blank = (0, 0)

    def __init__(self, padding: int | Sequence[int], value: float = 0) -> None:
        super().__init__(padding, value)


class ConstantPad3d(nn.ConstantPad3d, metaclass=SameAsTorch):
    """torch's ConstantPad3d; `value` is 0 by default."""

    _torch_class = nn.ConstantPad3d
    _blank = (0, 0)

    def __init__(self, padding: int | Sequence[int], value: float = 0) -> None:
        super().__init__(padding, value)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.padding", classes=True)
