"""Backward of both sides, from the outputs of a case with the same output gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import source
from .calls import compare_settings, current_settings, set_settings
from .case import Case
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError
from .functional import gradients_by_function
from .pair import tensors_of
from .printing import name_of

if TYPE_CHECKING:
    import torch

    from .pair import CandidateTensor


def run_backward(case: Case) -> None:
    """Run backward from each output that requires a gradient, with equal sampled gradients on both sides."""
    pair = case.pair
    case.ran_backward = True
    refs, cands, gradients = _outputs_with_gradients(case)
    if not refs:
        return
    case.output_gradients = gradients
    refused = None
    settings = current_settings()
    try:
        pair.reference.autograd.backward(refs, [on_device(g, r) for g, r in zip(gradients, refs)])
    except Exception as e:
        refused = e
    left_by_reference = current_settings()
    if pair.same_tensors:
        set_settings(settings)
    try:
        if pair.gradient_function is not None:
            case.candidate_gradients = gradients_by_function(case, gradients)
        else:
            pair.run_backward(cands, gradients)
    except Exception as e:
        if refused is not None:
            raise BothDoNotSupportError(refused, e) from None
        raise Mismatch(
            "one side raised",
            f"{pair.names[0]} runs backward(), {pair.names[1]} raised {type(e).__name__}: {e}",
        ) from e
    if refused is not None:
        if pair.accepts_more:
            raise PyTorchDoesNotSupportError(refused)
        raise Mismatch(
            "one side raised",
            f"{pair.names[0]} raised {type(refused).__name__} in backward(): {refused}\n{pair.names[1]}"
            " runs it",
        ) from refused
    if pair.same_tensors:
        compare_settings(settings, left_by_reference, pair.names)


def _outputs_with_gradients(
    case: Case,
) -> tuple[list[torch.Tensor], list[CandidateTensor], list[torch.Tensor]]:
    """Return the outputs of both sides that require a gradient, each once, and their output gradients."""
    pair = case.pair
    refs: list[torch.Tensor] = []
    cands: list[CandidateTensor] = []
    gradients: list[torch.Tensor] = []
    for out in case.outputs:
        of_reference = tensors_of(out._ref, pair.is_reference_tensor)
        of_candidate = tensors_of(out._cand, pair.is_candidate_tensor)
        for r, c in zip(of_reference, of_candidate):
            if pair.has_gradients and r.requires_grad != c.requires_grad:
                side, not_side = pair.names if r.requires_grad else reversed(pair.names)
                raise Mismatch(
                    "gradient", f"output {name_of(out)} requires a gradient in {side} and not in {not_side}"
                )
            if r.requires_grad and not any(r is ref for ref in refs):
                refs.append(r)
                cands.append(c)
                gradients.append(output_gradient(case, r, len(gradients)))
    return refs, cands, gradients


def on_device(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return gradient.to(device=like.device, dtype=like.dtype)


def output_gradient(case: Case, r: torch.Tensor, index: int) -> torch.Tensor:
    """Return the gradient of output `index`: uniform in [0, 1) by the seed of the case, or ones (simplest
    case, or the test asks for a plain sum).
    """
    import torch

    shape = tuple(r.shape)
    if not case.options.check_grad_use_random_data or case.seed < source.SIMPLE:
        return torch.ones(shape, dtype=r.dtype)
    rng = np.random.default_rng((case.seed, index))
    values = rng.uniform(0, 1, size=shape)
    if r.is_complex():
        values = values + 1j * rng.uniform(0, 1, size=shape)
    return torch.from_numpy(np.asarray(values)).to(r.dtype)
