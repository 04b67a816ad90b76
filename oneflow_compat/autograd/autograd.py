"""oneflow.autograd.autograd: where OneFlow defines `backward` and `grad`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import backward

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["backward", "grad"]


def grad(
    outputs: torch.Tensor | Sequence[torch.Tensor],
    inputs: torch.Tensor | Sequence[torch.Tensor],
    grad_outputs: torch.Tensor | Sequence[torch.Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    only_inputs: bool = True,
    materialize_grads: bool = False,
    out_grads: torch.Tensor | Sequence[torch.Tensor | None] | None = None,
) -> tuple[torch.Tensor, ...]:
    """torch.autograd.grad with `allow_unused` as the sixth argument (torch has the ignored only_inputs
    there).

    `out_grads` is an old name of `grad_outputs`.
    """
    grad_outputs = out_grads if grad_outputs is None else grad_outputs
    return torch.autograd.grad(
        outputs,
        inputs,
        grad_outputs,
        retain_graph,
        create_graph,
        only_inputs,
        allow_unused=allow_unused,
        is_grads_batched=is_grads_batched,
        materialize_grads=materialize_grads,
    )
