"""Whether rounding explains the distance between two results, or one of them is wrong.

Two right programs differ by rounding. The verdict asks three questions, each more expensive than the one
before it:

1. Is the distance a few units in the last place of the largest value?
2. Is the compiled result as near to a float64 run as the captured operators' result, within a factor?
3. Do inputs that differ by rounding change the captured operators' result as much? This is so for results
   that jump: an argmax between equal scores, a gradient at the kink of a relu.

Integers and bools must be equal, or change in the third question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

# Distance in units in the last place of the largest value that needs no float64 run. float32 sums of 1,000
# terms in another order differ by tens of units. Half types are rounded to once per operator in eager mode
# and once per loop in compiled code.
_ULPS = {torch.float64: 4096.0, torch.float32: 160.0, torch.float16: 2.0, torch.bfloat16: 2.0}
_MEAN_SHARE = 0.25  # share of the same bound, for the root mean square
FACTOR = 4.0  # the compiled result may be this many times as far from float64 as the captured operators'
TRIALS = 6  # runs on perturbed inputs


class Distance(NamedTuple):
    """How far a result is from another one. `unequal` counts elements of which one is not finite, or which
    are integers and differ.
    """

    largest: float
    mean: float  # root mean square
    unequal: int = 0

    def within(self, bound: Distance) -> bool:
        return self.largest <= bound.largest and self.mean <= bound.mean and self.unequal <= bound.unequal

    def times(self, factor: float) -> Distance:
        return Distance(self.largest * factor, self.mean * factor, math.ceil(self.unequal * factor))

    def plus(self, other: Distance) -> Distance:
        return Distance(self.largest + other.largest, self.mean + other.mean, self.unequal + other.unequal)


_ZERO = Distance(0.0, 0.0)


@dataclass(frozen=True)
class Judgement:
    """The verdict about one tensor. `evidence` says which question explained the distance."""

    is_right: bool
    evidence: str  # "equal", "rounding", "float64", "perturbation"
    distance: Distance = _ZERO
    scale: float = 0.0
    explained: Distance = _ZERO  # the distance that rounding explains

    def text(self) -> str:
        """Return what differs, for a message."""
        parts = []
        if self.distance.largest > self.explained.largest or self.distance.mean > self.explained.mean:
            parts.append(
                f"differs by up to {self.distance.largest:.3g} (values up to {self.scale:.3g},"
                f" rounding explains {self.explained.largest:.3g})"
            )
        if self.distance.unequal > self.explained.unequal:
            parts.append(f"has {self.distance.unequal} elements that are other integers or not finite")
        return " and ".join(parts)


class Evidence:
    """More expensive runs of the captured operators, made on demand.

    `exact()` is the float64 value of the tensor, `perturbed()` yields its values on perturbed inputs.
    """

    def __init__(
        self,
        exact: Callable[[], torch.Tensor],
        perturbed: Callable[[], Iterator[torch.Tensor]],
    ) -> None:
        self.exact, self.perturbed = exact, perturbed


def judge(compiled: torch.Tensor, captured: torch.Tensor, evidence: Evidence) -> Judgement:
    """Return the verdict about a compiled result beside the one of the captured operators.

    Both have one shape and dtype.
    """
    if compiled.numel() == 0:
        return Judgement(True, "equal")
    a, b = _real(compiled), _real(captured)
    distance, scale = _distance(a, b), _scale(b)
    if distance == _ZERO:
        return Judgement(True, "equal")
    rounding = _rounding(b, scale)
    if distance.within(rounding):
        return Judgement(True, "rounding", distance, scale, rounding)
    explained = rounding
    if b.is_floating_point():
        exact = _real(evidence.exact())
        bound = _distance(b, exact).times(FACTOR).plus(rounding)
        from_exact = _distance(a, exact)
        if from_exact.within(bound):
            return Judgement(True, "float64", from_exact, scale, bound)
        explained = _larger(explained, bound)
    for other in evidence.perturbed():
        explained = _larger(explained, _distance(_real(other), b).times(FACTOR).plus(rounding))
        if distance.within(explained):
            return Judgement(True, "perturbation", distance, scale, explained)
    return Judgement(False, "", distance, scale, explained)


def _larger(a: Distance, b: Distance) -> Distance:
    return Distance(max(a.largest, b.largest), max(a.mean, b.mean), max(a.unequal, b.unequal))


def _real(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if value.is_floating_point() and value.element_size() == 1:
        return value.float()
    return value


def _rounding(value: torch.Tensor, scale: float) -> Distance:
    if not value.is_floating_point():
        return _ZERO
    eps = torch.finfo(value.dtype).eps
    ulps = _ULPS.get(value.dtype, 2.0)
    return Distance(ulps * eps * scale, _MEAN_SHARE * ulps * eps * _mean(value))


def _scale(value: torch.Tensor) -> float:
    """Return the largest finite absolute value."""
    if not value.is_floating_point():
        return float(value.abs().max()) if value.dtype != torch.bool else 1.0
    largest = value.abs().amax().item()
    if math.isfinite(largest):
        return float(largest)
    finite = value[value.isfinite()]
    return finite.abs().amax().item() if finite.numel() else 0.0


def _mean(value: torch.Tensor) -> float:
    """Return the root mean square of the finite elements."""
    norm = torch.linalg.vector_norm(value, dtype=torch.float64).item()
    if not math.isfinite(norm):
        value = value[value.isfinite()]
        norm = torch.linalg.vector_norm(value, dtype=torch.float64).item() if value.numel() else 0.0
    return float(norm / math.sqrt(max(1, value.numel())))


def _distance(a: torch.Tensor, b: torch.Tensor) -> Distance:
    """Return the distance of `a` from `b`."""
    if not b.is_floating_point():
        return Distance(0.0, 0.0, int((a != b).sum()))
    if a.dtype == b.dtype and torch.equal(a, b):
        return _ZERO
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    difference = (a.to(wide) - b.to(wide)).abs_()
    largest = difference.amax().item()
    unequal = 0
    if not math.isfinite(largest):
        same = (a == b) | (a.isnan() & b.isnan())
        unequal = int((~same & ~(a.isfinite() & b.isfinite())).sum())
        difference = torch.where(a.isfinite() & b.isfinite(), difference, 0)
        largest = difference.amax().item()
    norm = torch.linalg.vector_norm(difference, dtype=torch.float64).item()
    return Distance(float(largest), float(norm / math.sqrt(difference.numel())), unequal)
