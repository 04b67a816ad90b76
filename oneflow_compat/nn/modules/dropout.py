"""Dropout modules with a generator of their own; Dropout also adds `addend` to its result."""

from __future__ import annotations

import torch
from torch import nn

from ... import _bind
from ..._ops.nn.dropout import dropout, generated
from ._same import SameAsTorch

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d"]


class Dropout(nn.Dropout, metaclass=SameAsTorch):
    """torch's Dropout with `generator`, and an `addend` in the call."""

    _torch_class = nn.Dropout
    _extras = {"generator": None}

    def __init__(
        self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(p, inplace)
        self.generator = generator

    def forward(self, x: torch.Tensor, addend: torch.Tensor | None = None) -> torch.Tensor:
        return dropout(x, self.p, self.training, self.inplace, self.generator, addend=addend)


class _Channels:
    """Whole channels are dropped with numbers from `generator`; without one, torch's own forward runs."""

    def _build(
        self, torch_class: type[torch.nn.Module], p: float, inplace: bool, generator: torch.Generator | None
    ) -> None:
        torch_class.__init__(self, p, inplace)
        self.generator = generator

    def _drop(self, torch_class: type[torch.nn.Module], x: torch.Tensor, spatial: int) -> torch.Tensor:
        if self.generator is None:
            return torch_class.forward(self, x)
        shape = tuple(x.shape[: x.dim() - spatial]) + (1,) * spatial
        return generated(x, self.p, self.training, self.inplace, self.generator, shape)


class Dropout1d(_Channels, nn.Dropout1d, metaclass=SameAsTorch):
    """torch's Dropout1d with `generator`."""

    _torch_class = nn.Dropout1d
    _extras = {"generator": None}

    def __init__(
        self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None
    ) -> None:
        self._build(nn.Dropout1d, p, inplace, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._drop(nn.Dropout1d, x, 1)


class Dropout2d(_Channels, nn.Dropout2d, metaclass=SameAsTorch):
    """torch's Dropout2d with `generator`."""

    _torch_class = nn.Dropout2d
    _extras = {"generator": None}

    def __init__(
        self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None
    ) -> None:
        self._build(nn.Dropout2d, p, inplace, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._drop(nn.Dropout2d, x, 2)


class Dropout3d(_Channels, nn.Dropout3d, metaclass=SameAsTorch):
    """torch's Dropout3d with `generator`."""

    _torch_class = nn.Dropout3d
    _extras = {"generator": None}

    def __init__(
        self, p: float = 0.5, inplace: bool = False, generator: torch.Generator | None = None
    ) -> None:
        self._build(nn.Dropout3d, p, inplace, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._drop(nn.Dropout3d, x, 3)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.dropout", classes=True)
