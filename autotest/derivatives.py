"""Derivatives beyond the gradient: second order, numerical, and forward mode.

The second derivatives of both sides are compared in one case of five, and in each case of `gradcheck=True`.
With `gradcheck=True`, the candidate's program also runs in float64, where its gradient along one direction
must be that of central differences, and of forward mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .backward import on_device, output_gradient
from .case import Case, DualObject
from .compare import compare_numbers
from .errors import Mismatch
from .oracle import PERTURBED_RUNS, WideReplay, narrowest_of
from .pair import tensors_of
from .verdict import OTHER_IMPLEMENTATION, Standard

if TYPE_CHECKING:
    import torch

STEP, DERIVATIVE_RTOL = 1e-6, 1e-4  # the step of central differences in float64, whose error is about 1e-9


def leaves_of(case: Case, side: str) -> dict[str, Any]:
    """Return {name: tensor} of the inputs and parameters of one side that require a gradient."""
    leaves = {f"x{s.number}": getattr(s.out, side) for s in case.steps if s.action == "input"}
    for module in case.modules:
        for name, p in getattr(module, side).named_parameters():
            leaves[f"m{module._step.number}.{name}"] = p
    return {name: t for name, t in leaves.items() if t.requires_grad and t.is_leaf}


def weighted_outputs(
    case: Case, side: str, value_of: Callable[[DualObject], Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the values of the outputs that require a gradient on this side, each once, and their weights."""
    outputs: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []
    is_tensor = case.pair.is_reference_tensor
    for dual in case.outputs:
        for t, own in zip(tensors_of(value_of(dual), is_tensor), tensors_of(getattr(dual, side), is_tensor)):
            if own.requires_grad and not any(t is seen for seen in outputs):
                weights.append(on_device(output_gradient(case, own, len(outputs)), t))
                outputs.append(t)
    return outputs, weights


def second_derivatives(
    leaves: dict[str, torch.Tensor], outputs: list[torch.Tensor], weights: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the gradients of a weighted sum of the first gradients."""
    import torch

    if not outputs or not leaves:
        return {}
    first = torch.autograd.grad(
        outputs, list(leaves.values()), weights, create_graph=True, retain_graph=True, allow_unused=True
    )
    total = [(g * (i + 1)).sum() for i, g in enumerate(first) if g is not None and g.requires_grad]
    if not total:
        return {}
    second = torch.autograd.grad(total, list(leaves.values()), retain_graph=True, allow_unused=True)
    return {name: g for name, g in zip(leaves, second) if g is not None}


def second_derivatives_of_side(case: Case, side: str) -> dict[str, torch.Tensor]:
    return second_derivatives(
        leaves_of(case, side), *weighted_outputs(case, side, lambda dual: getattr(dual, side))
    )


class WideSecondDerivatives:
    """The second derivatives of the float64 runs of a case, made when they are first asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @functools.cached_property
    def runs(self) -> list[dict[str, torch.Tensor]] | None:
        state = self.case.pair.random_state()
        try:
            return [self.run(index) for index in range(1 + PERTURBED_RUNS)]
        except Exception:  # no float64 form
            return None
        finally:
            self.case.pair.rewind(state)

    def run(self, index: int) -> dict[str, torch.Tensor]:
        case, replay = self.case, WideReplay(self.case, index)
        replay.forward()
        leaves = {f"x{s.number}": replay.env[s.number] for s in replay.inputs}
        for module in case.modules:
            for name, p in replay.modules[id(module._cand)].named_parameters():
                leaves[f"m{module._step.number}.{name}"] = p
        leaves = {name: t for name, t in leaves.items() if t.requires_grad and t.is_leaf}
        return second_derivatives(leaves, *weighted_outputs(case, "_ref", replay.value_of))

    def of(self, name: str) -> tuple[torch.Tensor, ...] | None:
        """Return the value of one leaf in each run."""
        if self.runs is None or any(name not in run for run in self.runs):
            return None
        return tuple(run[name] for run in self.runs)


def check_second_order(case: Case) -> None:
    """Compare the second derivatives of both sides; a reference without them has nothing to compare."""
    pair, options = case.pair, case.options
    state = pair.random_state()
    try:
        expected = second_derivatives_of_side(case, "_ref")
    except Exception:
        return
    finally:
        pair.rewind(state)
    try:
        found = second_derivatives_of_side(case, "_cand")
    except Exception as e:
        raise Mismatch(
            "second derivative", f"{pair.names[1]} raised {type(e).__name__}: {e}\n{pair.names[0]} has it"
        ) from e
    finally:
        pair.rewind(state)
    wide = WideSecondDerivatives(case)
    for name in dict.fromkeys((*expected, *found)):
        a, b = (side.get(name) for side in (expected, found))
        if a is None or b is None:
            there = a if b is None else b
            if there is not None and there.count_nonzero().item():
                missing = pair.names[0] if a is None else pair.names[1]
                raise Mismatch("second derivative", f"{name} has none in {missing}, and one that is not zero")
            continue
        truth = functools.partial(wide.of, name)
        standard = Standard(OTHER_IMPLEMENTATION, truth, functools.partial(narrowest_of, case))
        what = f"the second derivative of {name}"
        compare_numbers(a.detach(), b.detach(), what, options, pair.names, "second derivative", standard)


# ---------------------------------------------------------------------- numerical, and forward mode
class DirectedReplay(WideReplay):
    """The candidate's program in float64, its inputs moved by `distance` along one direction.

    forward_mode: the inputs carry the direction as their tangent instead.
    """

    def __init__(self, case: Case, distance: float, forward_mode: bool = False) -> None:
        super().__init__(case, 0, side="_cand")
        self.distance, self.forward_mode = distance, forward_mode
        self.directions: dict[int, torch.Tensor] = {}

    def _wide_input(self, step: Any) -> torch.Tensor:
        import torch

        x = super()._wide_input(step)
        if not (step.requires_grad and x.is_floating_point()):
            return x
        rng = np.random.default_rng((7, step.number))
        direction = torch.from_numpy(rng.choice([-1.0, 1.0], size=tuple(x.shape)))
        self.directions[step.number] = direction
        if self.forward_mode:
            return torch.autograd.forward_ad.make_dual(x.detach(), direction)
        return (x.detach() + self.distance * direction).requires_grad_(True)

    def weighted(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return (output, weights) of the outputs with a gradient."""
        outputs: list[torch.Tensor] = []
        for dual in self.case.outputs:
            wide = tensors_of(self.value_of(dual), self.pair.is_reference_tensor)
            for t, c in zip(wide, tensors_of(dual._cand, self.pair.is_reference_tensor)):
                if c.requires_grad and not any(t is seen for seen in outputs):
                    outputs.append(t)
        return [(t, output_gradient(self.case, t, i).to(t.dtype)) for i, t in enumerate(outputs)]


def value_along(case: Case, distance: float) -> float:
    replay = DirectedReplay(case, distance)
    replay.forward()
    return sum(float((t.detach() * w).sum()) for t, w in replay.weighted())


def gradient_along(case: Case) -> float:
    """Return the derivative along the direction, by backward."""
    import torch

    replay = DirectedReplay(case, 0.0)
    replay.forward()
    pairs = replay.weighted()
    inputs = {number: replay.env[number] for number in replay.directions}
    gradients = torch.autograd.grad(
        [t for t, _ in pairs], list(inputs.values()), [w for _, w in pairs], allow_unused=True
    )
    return sum(float((g * replay.directions[n]).sum()) for n, g in zip(inputs, gradients) if g is not None)


def tangent_along(case: Case) -> float:
    """Return the derivative along the direction, by forward mode."""
    from torch.autograd import forward_ad  # here, because the harness may be imported without torch

    with forward_ad.dual_level():
        replay = DirectedReplay(case, 0.0, forward_mode=True)
        replay.forward()
        tangents = [(forward_ad.unpack_dual(t).tangent, w) for t, w in replay.weighted()]
        return sum(float((tangent * w).sum()) for tangent, w in tangents if tangent is not None)


def check_numerically(case: Case) -> None:
    """Compare the candidate's gradient in float64 with central differences, and with forward mode."""
    try:
        by_backward = gradient_along(case)
        near, far = ((value_along(case, h) - value_along(case, -h)) / (2 * h) for h in (STEP, 4 * STEP))
    except Exception:  # no float64 form, or nothing to differentiate
        return
    name = case.pair.names[1]
    if _agree(near, far) and not _agree(by_backward, near):
        raise Mismatch(
            "numerical gradient",
            f"the gradient of {name} along one direction is {by_backward:.8g},"
            f" central differences give {near:.8g}",
        )
    try:
        by_tangents = tangent_along(case)
    except Exception:  # no forward mode
        return
    if not _agree(by_backward, by_tangents):
        raise Mismatch(
            "forward mode",
            f"the derivative of {name} along one direction is {by_tangents:.8g} by forward mode,"
            f" {by_backward:.8g} by backward",
        )


def _agree(a: float, b: float) -> bool:
    return not np.isfinite([a, b]).all() or abs(a - b) <= DERIVATIVE_RTOL * max(abs(a), abs(b), 1.0)
