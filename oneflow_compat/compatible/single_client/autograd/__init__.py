"""flow.autograd: today's functions under the older argument names."""

import torch
from torch import no_grad


def grad(outputs, inputs, out_grads=None, retain_graph=False, create_graph=False):
    """Gradients of `outputs` for `inputs`, weighted by `out_grads` (ones if None)."""
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    if out_grads is None:
        out_grads = [torch.ones_like(o) for o in outputs]
    return torch.autograd.grad(
        outputs, inputs, out_grads, retain_graph=retain_graph, create_graph=create_graph
    )


def backward(outputs, out_grads, retain_graph=False, create_graph=False):
    torch.autograd.backward(outputs, out_grads, retain_graph=retain_graph, create_graph=create_graph)


from . import autograd, autograd_mode

__all__ = ["autograd", "autograd_mode", "backward", "grad", "no_grad"]
