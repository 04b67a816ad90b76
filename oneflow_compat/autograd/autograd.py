"""oneflow.autograd.autograd: where OneFlow defines `backward` and `grad`."""

from __future__ import annotations

import torch
from torch.autograd import backward

__all__ = ["backward", "grad"]


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    allow_unused=None,
    is_grads_batched=False,
    only_inputs=True,
    materialize_grads=False,
    out_grads=None,
):
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
