"""oneflow.autograd: torch.autograd; Function instances are callable, inference_mode makes
ordinary tensors.
"""

from torch import enable_grad, is_grad_enabled, no_grad
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

from .._bind import fall_through as _ft
from . import autograd, autograd_function, autograd_mode
from .autograd import backward, grad
from .autograd_function import Function
from .autograd_mode import inference_mode, set_grad_enabled

__all__ = [
    "Function",
    "autograd",
    "autograd_function",
    "autograd_mode",
    "backward",
    "enable_grad",
    "grad",
    "hessian",
    "hvp",
    "inference_mode",
    "is_grad_enabled",
    "jacobian",
    "jvp",
    "no_grad",
    "set_grad_enabled",
    "vhp",
    "vjp",
]

__getattr__, __dir__ = _ft(__name__, "torch.autograd")
