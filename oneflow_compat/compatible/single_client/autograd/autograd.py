"""Deep path of flow.autograd.grad and backward."""

from . import backward, grad

__all__ = ["backward", "grad"]
