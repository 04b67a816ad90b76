"""Arguments of the checks: copies, arrays, and the tensors that require a gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .samples import OperatorSample, has_own_layout, tensors

if TYPE_CHECKING:
    import torch


def trained_leaves(args: object, modules: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    """Return the tensors of arguments and modules that require a gradient."""
    return [t for t in tensors(args) if t.requires_grad] + [
        p for m in modules for p in m.parameters() if p.requires_grad
    ]


def as_numpy(x: object) -> object:
    """Return a tensor as an array, and any other value unchanged."""
    return x.detach().numpy() if hasattr(x, "detach") else x


def copied(x: Any, device: str | None = None) -> Any:
    """A deep copy of arguments in which tensors are fresh leaves, on the device if one is given."""
    import torch

    if isinstance(x, torch.Tensor):
        fresh = copied_layout(x) if device is None else x.detach().clone().to(device)
        return fresh.requires_grad_(x.requires_grad)
    if isinstance(x, OperatorSample):
        return OperatorSample(*(copied(e, device) for e in x))
    if type(x) in (tuple, list):
        return type(x)(copied(e, device) for e in x)
    if type(x) is dict:
        return {k: copied(v, device) for k, v in x.items()}
    return x


def copied_layout(t: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides and the offset of a tensor, in fresh memory."""
    if not has_own_layout(t) or t.is_conj() or t.is_neg():
        return t.detach().clone()
    memory = t.detach().untyped_storage().clone()
    return t.detach().new_empty(0).set_(memory, t.storage_offset(), t.shape, t.stride())


def refilled(x: Any, tensors_: Iterable[torch.Tensor]) -> Any:
    """x with its tensors replaced by these, in order."""
    import torch

    replacements = iter(tensors_)

    def fill(e: Any) -> Any:
        if isinstance(e, torch.Tensor):
            return next(replacements)
        if isinstance(e, OperatorSample):
            return OperatorSample(*map(fill, e))
        if type(e) in (tuple, list):
            return type(e)(fill(i) for i in e)
        if type(e) is dict:
            return {k: fill(v) for k, v in e.items()}
        return e

    return fill(x)
