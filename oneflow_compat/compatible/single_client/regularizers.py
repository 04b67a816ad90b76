"""flow.regularizers: parts added to a variable's gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any


class Regularizer:
    """gradient + l1 * sign(variable) + l2 * variable."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1, self.l2 = l1, l2

    def add_to(self, gradient: Any, variable: Any) -> Any:
        if self.l1:
            gradient = gradient + self.l1 * torch.sign(variable).to(gradient.dtype)
        if self.l2:
            gradient = gradient + self.l2 * variable
        return gradient

    def __repr__(self) -> str:
        return f"Regularizer(l1={self.l1}, l2={self.l2})"


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> Any:
    return Regularizer(l1, l2)


def l1(l: float = 0.01) -> Any:
    return Regularizer(l, 0.0)


def l2(l: float = 0.01) -> Any:
    return Regularizer(0.0, l)
