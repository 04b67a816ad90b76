"""What a capture sets aside while build() runs: gradients, and train() or eval() of modules.

A graph leaves p.grad as it was. So without an optimizer, a backward() whose gradients nobody uses does
nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ...program.program import roots, written_args
from ..patches.patching import forget, log

if TYPE_CHECKING:
    from torch.fx import Graph

    from ...assumptions import Assumptions
    from ..interfaces import CaptureInterface


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

    def hidden(self) -> dict[int, torch.Tensor | None]:
        """Return {id of a tensor: the gradient that it has outside of the capture}."""
        return {id(tensor): grad for tensor, grad in self.saved}

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
    """Run build() with train() or eval() of each module as at the first capture of the graph."""

    def __init__(self, assumptions: Assumptions, modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
        if assumptions.modes is None:
            assumptions.modes = {id(m): (m, m.training) for _, m in modules}
        self.modes = assumptions.modes

    def __enter__(self) -> None:
        self.before = [(m, m.training) for m, _ in self.modes.values()]
        log(self.restore)
        self._set(self.modes.values())

    def __exit__(self, *error: object) -> None:
        self.restore()
        forget(self.restore)

    def restore(self) -> None:
        self._set(self.before)

    @staticmethod
    def _set(modes: Iterable[tuple[torch.nn.Module, bool]]) -> None:
        for module, training in modes:
            if module.training != training:  # Module.__setattr__ is slow
                module.training = training


def backward_is_unused(graph: Graph) -> bool:
    """Whether build() called backward(), and neither a result nor a write to the graph's state depends on a
    gradient.
    """
    backward = {n for n in graph.nodes if n.meta.get("phase") == "backward"}
    return bool(backward) and not backward & _used(graph)


def _used(graph: Graph) -> Any:
    used = set()
    for node in reversed(graph.nodes):
        writes = (root for root in roots(written_args(node))) if node.op == "call_function" else ()
        if (
            node.op == "output"
            or node in used
            or any(root.op == "placeholder" or root in used for root in writes)
        ):
            used.add(node)
            used.update(node.all_input_nodes)
    return used


def warn_of_unused_backward(capture: CaptureInterface) -> None:
    """Warn once that backward() has no effect."""
    if capture.assumptions.is_first_report("unused backward"):
        warnings.warn(
            f"graph {capture.definition.name}: backward() has no effect, because the graph has no"
            " optimizer and build() returns nothing that depends on a gradient. p.grad stays as it was before"
            " the call. Train with add_optimizer(), or return p.grad from build().",
            stacklevel=2,
        )
