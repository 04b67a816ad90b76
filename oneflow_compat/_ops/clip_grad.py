"""Clipping of gradients, also of global tensors on several placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.utils as _torch

from ..sbp import broadcast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._global.placement import placement as Placement


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    fused: bool = False,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Scale the gradients in place so that their joint norm is at most max_norm; the norm before, 0-d.

    `fused` is the fourth argument, as in OneFlow (torch has error_if_nonfinite there): it asks for torch's
    multi-tensor kernels, which torch takes by itself where they exist. No gradient at all gives 0.
    The norm of global tensors on several placements is on that of the first.
    """
    parameters = _as_list(parameters, "clip_grad_norm_")
    # placement of global tensors of several ranks -> its parameters
    stages: dict[Any, list[torch.Tensor]] = {}
    for p in parameters:
        if p.grad is not None:
            stages.setdefault(getattr(p.grad, "_of_placement", None), []).append(p)
    if len(stages) < 2 or None in stages:
        return _torch.clip_grad_norm_(
            parameters, max_norm, norm_type, error_if_nonfinite=error_if_nonfinite, foreach=foreach
        )
    norm_placement = next(iter(stages))
    norms = [
        _torch.get_total_norm([p.grad for p in stage if p.grad is not None], norm_type, foreach=foreach)
        for stage in stages.values()
    ]
    total = _torch.get_total_norm(
        [_on(norm, norm_placement) for norm in norms],
        norm_type,
        error_if_nonfinite=error_if_nonfinite,
        foreach=foreach,
    )
    for placement, stage in stages.items():
        _torch.clip_grads_with_norm_(stage, max_norm, _on(total, placement), foreach=foreach)
    return total


def clip_grad_value_(
    parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp the gradients in place to [-clip_value, clip_value]; without any gradient nothing happens (torch
    raises).
    """
    parameters = _as_list(parameters, "clip_grad_value_")
    trained = [p for p in parameters if p.grad is not None]
    if trained:
        _torch.clip_grad_value_(trained, clip_value, foreach=foreach)


def _as_list(parameters: torch.Tensor | Iterable[torch.Tensor], function: str) -> list[torch.Tensor]:
    if isinstance(parameters, torch.Tensor):
        return [parameters]
    if isinstance(parameters, torch.nn.Module):
        raise TypeError(
            f"{function} takes an iterable of parameters, found {type(parameters).__name__}; pass"
            " module.parameters()"
        )
    return list(parameters)


def _on(tensor: torch.Tensor, placement: Placement) -> torch.Tensor:
    return tensor.to_global(placement=placement, sbp=[broadcast] * len(placement.hierarchy))
