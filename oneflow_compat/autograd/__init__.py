"""oneflow.autograd: torch.autograd; Function instances are callable, inference_mode makes
ordinary tensors.

The deep paths autograd.autograd, autograd_function and autograd_mode are rows of `_tables/deep_paths.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import enable_grad, is_grad_enabled, no_grad
from torch.autograd import backward
from torch.autograd.function import BackwardCFunction
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

from .._bind import fall_through as _ft

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Function",
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


def _is_data_valid(ctx: Any) -> bool:
    """Whether backward() has not yet freed what forward() saved; a row of `_tables/module.py`."""
    try:
        ctx.saved_tensors
    except RuntimeError:
        return False
    return True


class Function(torch.autograd.Function):
    """torch's Function; `MyFunction()(x)` is `MyFunction.apply(x)`.

    Define `forward(ctx, *inputs)` and `backward(ctx, *out_grads)` as static methods.
    """

    ctx = BackwardCFunction  # the class of the first argument of forward and backward

    def __init__(self) -> None:
        pass  # torch's warns that instances are useless; here they are callable

    def __call__(self, *inputs: Any) -> Any:
        return type(self).apply(*inputs)


def set_grad_enabled(is_train: bool = True, *, mode: bool | None = None) -> torch.set_grad_enabled:
    """torch.set_grad_enabled (context manager, decorator, or plain call), with OneFlow's name of the
    argument.
    """
    return torch.set_grad_enabled(is_train if mode is None else mode)


def inference_mode(mode: Any = True) -> Any:
    """no_grad(), or enable_grad() with False, as a context manager or decorator.

    Tensors made inside are ordinary ones, as in OneFlow: they may be changed and enter autograd later
    (torch's inference tensors may not; `set_dialect("torch")` gives torch's).
    """
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else torch.enable_grad()


__getattr__, __dir__ = _ft(__name__, "torch.autograd")
