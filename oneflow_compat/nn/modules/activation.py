"""Activation modules with an `inplace` argument that torch's lack."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ... import _bind
from ..._ops.nn.activation import hardshrink, overwrite, softshrink
from ._same import SameAsTorch

__all__ = ["Hardshrink", "Softshrink", "Softsign"]


class Hardshrink(nn.Hardshrink, metaclass=SameAsTorch):
    """torch's Hardshrink with `inplace`."""

    _torch_class = nn.Hardshrink
    _extras = {"inplace": False}

    def __init__(self, lambd: float = 0.5, inplace: bool = False) -> None:
        super().__init__(lambd)
        self.inplace = inplace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return hardshrink(x, self.lambd, self.inplace)

    def extra_repr(self) -> str:
        return f"{self.lambd}" + (", inplace=True" if self.inplace else "")


class Softshrink(nn.Softshrink, metaclass=SameAsTorch):
    """torch's Softshrink with `inplace`."""

    _torch_class = nn.Softshrink
    _extras = {"inplace": False}

    def __init__(self, lambd: float = 0.5, inplace: bool = False) -> None:
        super().__init__(lambd)
        self.inplace = inplace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return softshrink(x, self.lambd, self.inplace)

    def extra_repr(self) -> str:
        return f"{self.lambd}" + (", inplace=True" if self.inplace else "")


class Softsign(nn.Softsign, metaclass=SameAsTorch):
    """torch's Softsign with `inplace`."""

    _torch_class = nn.Softsign
    _extras = {"inplace": False}

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return overwrite(x, F.softsign) if self.inplace else F.softsign(x)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.activation", classes=True)
