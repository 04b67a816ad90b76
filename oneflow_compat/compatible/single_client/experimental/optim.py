"""flow.experimental.optim of 0.5: today's optimizers, whose learning rate and `scale` come as keywords."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import torch


_today = importlib.import_module(__package__.split(".")[0] + ".optim")
Optimizer, lr_scheduler = _today.Optimizer, _today.lr_scheduler
__path__: list[Any] = []  # a package: `import oneflow.experimental.optim.lr_scheduler`


def _scaled(cls: type) -> Any:
    """Today's class with the argument `scale`: gradients are multiplied by it before the update."""

    class Scaled(cls):
        def step(self, closure: Any = None) -> Any:
            if self._scale != 1.0:
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.grad.mul_(self._scale)
            return super().step(closure)

    Scaled.__name__ = Scaled.__qualname__ = cls.__name__
    return Scaled


class SGD(_scaled(_today.SGD)):  # type: ignore[misc]  # a class made for it
    """Today's SGD; gradients are multiplied by `scale`."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], lr: float = 1e-3, momentum: float = 0.0, scale: float = 1.0
    ) -> None:
        self._scale = scale
        super().__init__(parameters, lr=lr, momentum=momentum)


class Adam(_scaled(_today.Adam)):  # type: ignore[misc]  # a class made for it
    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: int = 0,
        amsgrad: bool = False,
        scale: float = 1.0,
    ) -> None:
        self._scale = scale
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class AdamW(_scaled(_today.AdamW)):  # type: ignore[misc]  # a class made for it
    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: int = 0,
        amsgrad: bool = False,
        scale: float = 1.0,
    ) -> None:
        self._scale = scale
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class RMSprop(_scaled(_today.RMSprop)):  # type: ignore[misc]  # a class made for it
    def __init__(
        self,
        parameters: Any,
        lr: float = 1e-3,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: int = 0,
        momentum: float = 0.0,
        centered: bool = False,
        scale: float = 1.0,
    ) -> None:
        self._scale = scale
        super().__init__(
            parameters,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
        )
