"""flow.autograd: today's functions under the older argument names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def grad(
    outputs: torch.Tensor,
    inputs: Sequence[torch.Tensor],
    out_grads: Any = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Gradients of `outputs` for `inputs`, weighted by `out_grads` (ones if None)."""
    results = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    if out_grads is None:
        out_grads = [torch.ones_like(o) for o in results]
    return torch.autograd.grad(
        results, inputs, out_grads, retain_graph=retain_graph, create_graph=create_graph
    )


def backward(
    outputs: Sequence[torch.Tensor],
    out_grads: Sequence[torch.Tensor],
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    torch.autograd.backward(outputs, out_grads, retain_graph=retain_graph, create_graph=create_graph)


from . import autograd, autograd_mode

__all__ = ["autograd", "autograd_mode", "backward", "grad", "no_grad"]
