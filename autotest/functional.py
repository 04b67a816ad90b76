"""Gradients of a candidate without backward(): the program of a case as a function of its inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .case import Case
from .pair import tensors_of
from .replay import Replay

if TYPE_CHECKING:
    import torch

    from .pair import CandidateTensor


def gradients_by_function(case: Case, output_gradients: list[torch.Tensor]) -> dict[int, CandidateTensor]:
    """Return {number of an input: its gradient}, by the `grad=` function of bind().

    The program runs once more, on the inputs that the function passes.

    Raises ValueError if the function returns another number of gradients than there are inputs.
    """
    pair = case.pair
    assert pair.gradient_function is not None
    replay = Replay(case)
    leaves = [step for step in replay.inputs if step.requires_grad]

    def program(*given: CandidateTensor) -> list[CandidateTensor]:
        env: dict[int, Any] = {s.number: s.out._cand for s in replay.inputs}
        env |= {s.number: x for s, x in zip(leaves, given)}
        replay.run_steps(env, functools.partial(replay.value, env, {}))
        return differentiable_outputs(case, replay, env)

    inputs = [step.out._cand for step in leaves]
    found = list(pair.gradient_function(program, inputs, [pair.to_candidate(g) for g in output_gradients]))
    if len(found) != len(leaves):
        raise ValueError(
            f"bind(grad=...) must return a gradient for each of the {len(leaves)} inputs, found {len(found)}"
        )
    return {step.number: gradient for step, gradient in zip(leaves, found)}


def differentiable_outputs(case: Case, replay: Replay, env: dict[int, Any]) -> list[CandidateTensor]:
    """Return the candidate's outputs whose twin in the reference requires a gradient, each once."""
    pair = case.pair
    outputs, seen = [], list[Any]()
    for dual in case.outputs:
        of_candidate = tensors_of(replay.value(env, {}, dual), pair.is_candidate_tensor)
        for r, c in zip(tensors_of(dual._ref, pair.is_reference_tensor), of_candidate):
            if r.requires_grad and not any(r is other for other in seen):
                seen.append(r)
                outputs.append(c)
    return outputs
