"""What a capture sets aside while build() runs: gradients, and train() or eval() of modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .patching import forget, log


class GradientsAside:
    """Take .grad away from the tensors of the state during a capture, and give it back afterwards."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.tensors = list(tensors)

    def __enter__(self) -> GradientsAside:
        self.saved: list[Any] = []
        self.seen: set[int] = set()
        log(self.restore)
        for tensor in self.tensors:
            self.hide(tensor)
        return self

    def hide(self, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and id(tensor) not in self.seen:
            self.seen.add(id(tensor))
            self.saved.append((tensor, tensor.grad))
            if tensor.grad is not None:
                tensor.grad = None

    def __exit__(self, *error: object) -> None:
        self.restore()
        forget(self.restore)
        self.saved.clear()  # an error of build() keeps this object in its frames

    def restore(self) -> None:
        for tensor, grad in self.saved:
            if tensor.grad is not grad:
                tensor.grad = None
                if grad is not None:
                    tensor.grad = grad


class ModesOfFirstCapture:
    """Run build() with train() or eval() of each module as at the first capture of the engine."""

    def __init__(self, engine: Any, modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
        if engine.modes is None:
            engine.modes = {id(m): (m, m.training) for _, m in modules}
        self.modes = engine.modes

    def __enter__(self) -> None:
        self.before = [(m, m.training) for m, _ in self.modes.values()]
        log(self.restore)
        for module, training in self.modes.values():
            module.training = training

    def __exit__(self, *error: object) -> None:
        self.restore()
        forget(self.restore)

    def restore(self) -> None:
        for module, training in self.before:
            module.training = training
