"""Checking one case after its program has run: every result, every gradient, every buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import source
from .calls import compare_settings, current_settings, set_settings
from .case import Case, DualObject
from .compare import compare_gradients, compare_values
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError
from .printing import name_of

if TYPE_CHECKING:
    import torch

    from .pair import CandidateTensor, Pair


def flatten_outputs(result: Any) -> list[DualObject]:
    """Return the dual objects that a test returned, out of any nesting of sequences and dicts."""
    if result is None:
        return []
    if hasattr(type(result), "__dual__"):
        return [result]
    if isinstance(result, dict):
        return [d for v in result.values() for d in flatten_outputs(v)]
    if isinstance(result, (list, tuple)):
        return [d for v in result for d in flatten_outputs(v)]
    return []


def tensors_of(x: object, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the tensors in x, through sequences and dicts, in order."""
    if is_tensor(x):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return [t for e in x for t in tensors_of(e, is_tensor)]
    return []


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
        backward_candidate(pair, cands, gradients)
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
            if r.requires_grad != c.requires_grad:
                side, not_side = pair.names if r.requires_grad else reversed(pair.names)
                raise Mismatch(
                    "gradient", f"output {name_of(out)} requires a gradient in {side} and not in {not_side}"
                )
            if r.requires_grad and not any(r is ref for ref in refs):
                refs.append(r)
                cands.append(c)
                gradients.append(output_gradient(case, r, len(gradients)))
    return refs, cands, gradients


def backward_candidate(pair: Pair, cands: list[CandidateTensor], gradients: list[torch.Tensor]) -> None:
    """Run the candidate's backward from these outputs, with output gradients given as torch
    tensors.
    """
    candidate_gradients = []
    for g, c in zip(gradients, cands):
        g = pair.to_candidate(g, requires_grad=False)
        if getattr(c, "is_global", False):
            g = g.to_global(placement=c.placement, sbp=[pair.candidate.sbp.broadcast] * len(c.sbp))
        elif hasattr(g, "to"):
            g = g.to(c.device)
        candidate_gradients.append(g.to(c.dtype))
    autograd: Any = getattr(pair.candidate, "autograd", None)
    if len(cands) == 1 or not hasattr(autograd, "backward"):
        for c, g in zip(cands, candidate_gradients):
            c.backward(g)
    else:
        autograd.backward(cands, candidate_gradients)


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


def check_results(case: Case) -> None:
    """Compare every tensor of the program, in program order, so that the earliest difference is reported."""
    pair, options = case.pair, case.options
    values = options.check_allclose
    for step in case.steps:
        out = step.out
        if out is None or step.action == "input":
            if out is not None and values:
                compare_values(pair, out._ref, out._cand, name_of(out), options)
            continue
        if holds_tensor(pair, out._ref) or holds_tensor(pair, out._cand):
            compare_values(pair, out._ref, out._cand, name_of(out), options, check_values=values)


def holds_tensor(pair: Pair, x: object) -> bool:
    """Whether x is a tensor of either side, or a sequence that holds one."""
    if pair.is_reference_tensor(x) or pair.is_candidate_tensor(x):
        return True
    return isinstance(x, (tuple, list)) and any(holds_tensor(pair, e) for e in x)


def check_outputs(case: Case) -> None:
    """Compare the returned values that hold no tensor: numbers, dtypes and other plain values."""
    for out in case.outputs:
        if not holds_tensor(case.pair, out._ref) or out._step is None:
            compare_values(
                case.pair,
                out._ref,
                out._cand,
                name_of(out),
                case.options,
                check_values=case.options.check_allclose,
            )


def ids_of_manual_gradients(case: Case) -> set[int]:
    """Return the ids of reference tensors whose gradient the test took by hand, through `x.oneflow` only: it
    never called a dual backward.
    """
    if any(
        step.action == "call" and step.target._path.rpartition(".")[2] in ("backward", "grad")
        for step in case.steps
    ):
        return set()
    outs = [
        step.out
        for step in case.steps
        if step.out is not None and case.pair.is_reference_tensor(step.out._ref) and step.out._ref.is_leaf
    ]
    return {
        id(out._ref) for out in outs if out._ref.grad is None and getattr(out._cand, "grad", None) is not None
    }


def tensors_with_gradients(case: Case) -> list[DualObject]:
    """Return the dual tensors whose `.grad` is compared: leaves, and others that retain it."""
    seen, duals = ids_of_manual_gradients(case), []
    for step in case.steps:
        out = step.out
        if out is not None and case.pair.is_reference_tensor(out._ref) and id(out._ref) not in seen:
            seen.add(id(out._ref))
            if out._ref.is_leaf or out._ref.retains_grad:
                duals.append(out)
    return duals


def check_gradients(case: Case, duals: list[DualObject]) -> None:
    """Compare the gradients of these dual tensors."""
    pair, options = case.pair, case.options
    for dual in duals:
        compare_gradients(
            pair, dual._ref, dual._cand, name_of(dual), options, check_values=options.check_allclose
        )


def check_modules(case: Case) -> None:
    """Compare parameters, their gradients, and buffers (the running statistics that a forward changes)."""
    pair, options = case.pair, case.options
    for module in case.modules:
        theirs = dict(module._cand.named_parameters())
        for name, r in module._ref.named_parameters():
            if name not in theirs:
                continue  # warned about when the module was made
            what = f"parameter {name} of {name_of(module)}"
            compare_gradients(pair, r, theirs[name], what, options, check_values=options.check_allclose)
            compare_values(pair, r, theirs[name], what, options, check_values=options.check_allclose)
    for module in case.modules:
        theirs = dict(module._cand.named_buffers())
        for name, r in module._ref.named_buffers():
            if name in theirs:
                try:
                    compare_values(
                        pair,
                        r,
                        theirs[name],
                        f"buffer {name} of {name_of(module)}",
                        options,
                        check_values=options.check_allclose,
                    )
                except Mismatch as e:
                    raise Mismatch("buffers", str(e)) from None


def check(case: Case) -> None:
    """Run all checks of the two eager sides, in order."""
    check_results(case)
    check_outputs(case)
    # before the harness's own backward, after which it cannot tell manual gradients
    case.duals_with_gradient = tensors_with_gradients(case)
    if case.options.auto_backward:
        run_backward(case)
    check_gradients(case, case.duals_with_gradient)
    check_modules(case)
