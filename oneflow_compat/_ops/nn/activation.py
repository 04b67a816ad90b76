"""Activation functions with an argument that torch's lack, or another positional order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch.nn import functional as F

from .._signature import bind, parse, spelled

__all__ = [
    "softmax",
    "log_softmax",
    "gumbel_softmax",
    "gelu",
    "hardshrink",
    "softshrink",
    "normalize",
    "l2_normalize",
    "depend",
]


def _implicit(dim: int | None, input: object) -> Any:
    """The dimension taken when none is given: 0 for tensors of 0, 1 and 3 dimensions, else 1."""
    # torch's function decides for a proxy of torch.fx
    if dim is not None or not isinstance(input, torch.Tensor):
        return dim
    return 0 if input.dim() in (0, 1, 3) else 1


@spelled("x=input")
def softmax(
    input: torch.Tensor,
    dim: int | None = None,
    dtype: torch.dtype | None = None,
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """softmax; differs from torch's: `dtype` is argument 3 (an int there is torch's `_stacklevel`), a missing
    `dim` does not warn.
    """
    if torch_rest or isinstance(dtype, int):
        return F.softmax(input, dim, dtype, *torch_rest, **torch_more)
    return F.softmax(input, _implicit(dim, input), dtype=dtype, **torch_more)


def log_softmax(
    input: torch.Tensor,
    dim: int | None = None,
    dtype: torch.dtype | None = None,
    *torch_rest: Any,
    **torch_more: Any,
) -> torch.Tensor:
    """log(softmax); differs from torch's as `softmax` does."""
    if torch_rest or isinstance(dtype, int):
        return F.log_softmax(input, dim, dtype, *torch_rest, **torch_more)
    return F.log_softmax(input, _implicit(dim, input), dtype=dtype, **torch_more)


def gumbel_softmax(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Sample of the Gumbel-softmax distribution; differs from torch's: the order (x, tau, dim, hard,
    generator).

    A bool in slot 3 is torch's `hard` (then slot 4 is `eps`, slot 5 `dim`). Without `dim`, softmax's
    rule holds, where torch takes -1. `eps` is ignored, as in torch.
    """
    theirs = len(args) > 2 and isinstance(args[2], bool)
    slots = (
        ("logits", "tau", "hard", "eps", "dim") if theirs else ("logits", "tau", "dim", "hard", "generator")
    )
    arguments = bind("gumbel_softmax", slots, args, kwargs, x="logits")
    return _gumbel_softmax(
        arguments.pop("logits"),
        arguments.pop("eps", None),
        **({"dim": -1, **arguments} if theirs else arguments),
    )


gumbel_softmax.__signature__ = parse("(x, tau=1.0, dim=None, hard=False, generator=None, **torch_keywords)")


def _gumbel_softmax(
    logits: torch.Tensor,
    _eps: object,
    tau: float = 1.0,
    dim: int | None = None,
    hard: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    dim = _implicit(dim, logits)
    if generator is None:
        return F.gumbel_softmax(logits, tau, hard, dim=dim)
    noise = (
        torch.empty_like(logits, memory_format=torch.legacy_contiguous_format)
        .exponential_(generator=generator)
        .log()
    )
    soft = ((logits - noise) / tau).softmax(dim)
    if not hard:
        return soft
    one_hot = torch.zeros_like(soft).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0)
    return one_hot - soft.detach() + soft


def gelu(
    input: torch.Tensor, approximate: Literal["none", "tanh"] = "none", *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """GELU; differs from torch's: `approximate` ("none" or "tanh") may be positional."""
    return F.gelu(input, approximate=approximate, out=out)


def hardshrink(
    input: torch.Tensor, lambd: float = 0.5, inplace: bool = False, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """x where |x| > lambd, else 0; differs from torch's: `inplace`."""
    return overwrite(input, F.hardshrink, lambd) if inplace else F.hardshrink(input, lambd, out=out)


def softshrink(
    input: torch.Tensor,
    alpha: float = 0.5,
    inplace: bool = False,
    *,
    lambd: float | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x shrunk towards 0 by alpha (torch's name: lambd); differs from torch's: `inplace`."""
    lambd = alpha if lambd is None else lambd
    return overwrite(input, F.softshrink, lambd) if inplace else F.softshrink(input, lambd, out=out)


def overwrite(input: torch.Tensor, function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """Write function(input, *args) into `input` and return it; the gradient is the function's.

    Backward needs the values before the call, so a tensor in a graph is copied: this saves no memory.
    """
    if not (torch.is_grad_enabled() and input.requires_grad):
        return input.copy_(function(input, *args))
    if input.is_leaf:
        raise RuntimeError(
            "a leaf Tensor that requires grad is being used in an in-place operation: pass inplace=False"
        )
    return input.copy_(function(input.clone(), *args))


def normalize(
    input: torch.Tensor,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    use_l2_norm_kernel: bool | torch.Tensor = True,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x / max(norm, eps); differs from torch's: slot 5 is `use_l2_norm_kernel`, which selects nothing here (a
    tensor there is torch's `out`).
    """
    if isinstance(use_l2_norm_kernel, torch.Tensor):
        out = use_l2_norm_kernel
    return F.normalize(input, p, dim, eps, out=out)


def l2_normalize(
    input: torch.Tensor, axis: int = 0, epsilon: float = 1e-12, *, dim: int | None = None
) -> torch.Tensor:
    """x / sqrt(max(sum(x * x), epsilon)) along `axis`, which OneFlow 0.6 and 0.7 call `dim` (not
    in torch).

    The result has the shape and dtype of x.
    """
    return input / (input * input).sum(axis if dim is None else dim, keepdim=True).clamp_min(epsilon).sqrt()


def depend(input: torch.Tensor, depend: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """`input`, ordered after the tensor or list of tensors `depend` (not in torch).

    Eager calls and captured programs here run in the order of the source, so nothing is left to do.

    The result has the shape and dtype of `input`. TypeError for arguments that are not tensors.
    """
    tensors = depend if isinstance(depend, (list, tuple)) else [depend]
    for tensor in [input, *tensors]:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"depend() takes a tensor and a tensor or list of tensors, found {type(tensor).__name__}"
            )
    return input
