"""oneflow.autograd.autograd_function: torch's Function, whose instances may be called."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import BackwardCFunction as FunctionCtx

__all__ = ["Function", "FunctionCtx"]


def is_data_valid(ctx: Any) -> bool:
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

    ctx = FunctionCtx  # what the first argument of forward and backward offers

    def __init__(self) -> None:
        pass  # torch's warns that instances are useless; here they are callable

    def __call__(self, *inputs: Any) -> Any:
        return type(self).apply(*inputs)
