"""Run a compiled region beside the captured operators, on the same inputs and random numbers, and compare."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..copies import CallState, copy_size, generator_states, have_equal_bits, set_generator_states
from .memory import available
from .runs import Reference
from .verdict import TRIALS, Evidence, Judgement, judge

if TYPE_CHECKING:
    from ...program.program import CompiledFunction

_SHARE = 0.5  # share of the available memory that a proof may take


@dataclass(frozen=True)
class Difference:
    """A result, a written input or a state that the compiled region has otherwise."""

    subject: str
    detail: str
    result: int | None = None  # position, if it is a result


@dataclass(frozen=True)
class Proof:
    """The outcome of one comparison."""

    differences: tuple[Difference, ...] = ()
    tensors: int = 0  # compared
    evidence: tuple[str, ...] = ()  # texts of the tensors that are not equal bit for bit, by decreasing cost
    largest: float = 0.0  # distance relative to the scale of its tensor
    excluded: str | None = None  # why values were not compared
    parts: int = 1  # groups of results that were compared one after the other
    bytes: int = 0  # extra memory
    seconds: float = 0.0
    operator: int | None = None  # position of the first operator that differs among the region's nodes

    @property
    def holds(self) -> bool:
        return not self.differences


@dataclass(frozen=True)
class Outcome:
    """What a run left: its results, or the exception that it raised, and the generators afterwards."""

    results: Sequence[Any] | None
    error: Exception | None
    generators: dict[torch.device, torch.Tensor]


@dataclass(frozen=True)
class Compared:
    """The results of a call that was compared, the proof, and the inputs before the call."""

    results: Sequence[Any]
    proof: Proof
    before: CallState


def compared(
    function: CompiledFunction, reference: Reference, values: Sequence[Any], has_own_samplers: bool = False
) -> Compared:
    """Run a region for a call and prove it.

    If the compiled function is wrong, the inputs hold what the captured operators write, and the results are
    theirs. If the captured operators raise, too, their exception is raised and the inputs are unchanged.
    `has_own_samplers`: the compiled function samples other random numbers, so only layouts are compared.
    """
    begin = time.perf_counter()
    everything = range(len(values))
    budget = int(available(values) * _SHARE)
    copies_all = copy_size(values, everything) <= budget
    state = CallState(values, everything if copies_all else reference.written)
    try:
        outcome = _run(function, values)
        proof = _comparison(outcome, reference, state, budget, has_own_samplers and reference.samples)
    except BaseException:  # an error of the captured operators, or an interrupt
        state.restore()
        raise
    proof = replace(
        proof,
        bytes=copy_size(values, state.copies) + _size(outcome.results or ()) // proof.parts,
        seconds=time.perf_counter() - begin,
    )
    if proof.holds and outcome.results is not None:
        return Compared(outcome.results, proof, state)
    state.restore()
    return Compared(reference.function()(*values), proof, state)


def _run(function: CompiledFunction, values: Sequence[Any]) -> Outcome:
    try:
        results, error = function(*values), None
    except Exception as raised:
        results, error = None, raised
    return Outcome(results, error, generator_states(values))


def _comparison(
    outcome: Outcome, reference: Reference, state: CallState, budget: int, has_own_samplers: bool
) -> Proof:
    after = generator_states(state.values)
    parts = _parts(outcome.results, len(reference.results), budget)
    proofs = []
    for positions in parts:
        set_generator_states(state.generators)
        inputs = state.fresh_values(reference.written)
        results = reference.function(positions)(*inputs)
        if outcome.error is not None:
            return Proof((Difference("the call", _raised(outcome.error)),))
        expected = Outcome(results, None, generator_states(state.values))
        comparison = _Comparison(outcome, expected, reference, state, inputs, positions)
        proofs.append(comparison.proof(has_own_samplers))
    set_generator_states(after)
    return Proof(
        differences=tuple(d for p in proofs for d in p.differences),
        tensors=sum(p.tensors for p in proofs),
        evidence=tuple(sorted({e for p in proofs for e in p.evidence})),
        largest=max((p.largest for p in proofs), default=0.0),
        excluded=proofs[0].excluded if proofs else None,
        parts=len(parts),
    )


def _raised(error: Exception) -> str:
    return f"raises {type(error).__name__}: {error}".split("\n", 1)[0]


def _parts(results: Sequence[Any] | None, count: int, budget: int) -> list[tuple[int, ...]]:
    """Return groups of the positions of `count` results, each of which fits into the budget."""
    groups = max(1, math.ceil(_size(results or ()) / max(1, budget)))
    groups = min(groups, max(1, count))
    return [tuple(range(count))[i::groups] for i in range(groups)]


def _owners(values: Sequence[Any], results: int) -> list[int]:
    """Return, for each result, the first value in the same memory: an input, or a result.

    `values` are the results and then the inputs.
    """
    owners: dict[int, int] = {}
    for index in (*range(results, len(values)), *range(results)):
        if isinstance(values[index], torch.Tensor) and values[index].numel():
            owners.setdefault(values[index].untyped_storage().data_ptr(), index)
    return [
        owners[v.untyped_storage().data_ptr()] if isinstance(v, torch.Tensor) and v.numel() else -1
        for v in values[:results]
    ]


def _size(results: Sequence[Any]) -> int:
    return sum(r.numel() * r.element_size() for r in results if isinstance(r, torch.Tensor))


class _Comparison:
    """The results of a compiled run, and the inputs after it, beside those of the captured operators."""

    def __init__(
        self,
        outcome: Outcome,
        expected: Outcome,
        reference: Reference,
        state: CallState,
        inputs: Sequence[Any],
        positions: Sequence[int],
    ) -> None:
        assert outcome.results is not None and expected.results is not None
        self.reference, self.state, self.positions = reference, state, positions
        self.outcome, self.expected = outcome, expected
        self.compiled = [*(outcome.results[i] for i in positions), *state.values]
        self.captured = [*expected.results, *inputs]
        self.owners = _owners(self.compiled, len(positions)), _owners(self.captured, len(positions))
        self._exact: Sequence[torch.Tensor] | None = None
        # {(rounding, trial): perturbed inputs}
        self._perturbed: dict[tuple[float, int], Sequence[torch.Tensor]] = {}

    def proof(self, has_own_samplers: bool) -> Proof:
        differences: list[Difference] = []
        judgements: list[Judgement] = []
        for index in range(len(self.compiled)):
            if isinstance(self.captured[index], torch.Tensor):
                detail = self._layout_difference(index)
                if detail is None and not has_own_samplers:
                    judgement = self._judgement(index)
                    judgements.append(judgement)
                    detail = None if judgement.is_right else judgement.text()
                if detail is not None:
                    differences.append(self._difference(index, detail))
        if not has_own_samplers and not self._has_equal_generators():
            differences.append(Difference("the random generator", "has another state after the call"))
        return Proof(
            tuple(differences),
            tensors=len(judgements),
            evidence=tuple({j.evidence for j in judgements if j.evidence not in ("", "equal")}),
            largest=max((j.distance.largest / (j.scale or 1.0) for j in judgements), default=0.0),
            excluded="it samples other random numbers than eager mode" if has_own_samplers else None,
        )

    def _difference(self, index: int, detail: str) -> Difference:
        results = len(self.positions)
        if index < results:
            position = self.positions[index]
            return Difference(
                f"result {position} ({self.reference.results[position].name})", detail, position
            )
        return Difference(f"input {index - results} after the call", detail)

    def _layout_difference(self, index: int) -> str | None:
        """Return how shape, dtype, or the memory that is shared with an input differ."""
        a, b = self.compiled[index], self.captured[index]
        if not isinstance(a, torch.Tensor):
            return f"is {type(a).__name__} instead of a tensor"
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"is {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if index < len(self.positions):
            if self.owners[0][index] != self.owners[1][index]:
                return "shares memory with other tensors than in eager mode"
        return None

    def _judgement(self, index: int) -> Judgement:
        a, b = self.compiled[index], self.captured[index]
        position = index - len(self.positions)
        if position >= 0 and position not in self.reference.written:
            if position not in self.state.copies:
                return Judgement(True, "equal")
            if have_equal_bits(a, b):
                return Judgement(True, "equal")
            return replace(judge(a, b, Evidence(lambda: b, lambda: iter(()))), is_right=False)
        return judge(a, b, Evidence(lambda: self._exact_run()[index], lambda: self._perturbed_runs(index)))

    def _exact_run(self) -> Sequence[torch.Tensor]:
        if self._exact is None:
            self._exact = self._run_or_captured(self.reference.in_float64)
        return self._exact

    def _perturbed_runs(self, index: int) -> Iterator[torch.Tensor]:
        position = index - len(self.positions)
        if position < 0:
            eps = self.reference.rounding_of_result(self.positions[index])
        else:
            eps = self.reference.rounding_of_input(position)
        for trial in range(TRIALS):
            if (eps, trial) not in self._perturbed:
                run = functools.partial(self.reference.on_perturbed, eps=eps, trial=trial)
                self._perturbed[eps, trial] = self._run_or_captured(run)
            yield self._perturbed[eps, trial][index]

    def _run_or_captured(self, run: Callable[..., Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Run the captured operators on other values. If an operator raises for these, as an index computed
        from them may be out of range, the values explain no difference: return the captured ones.
        """
        set_generator_states(self.state.generators)
        try:
            return run(self.positions, self._inputs())
        except Exception:
            return self.captured

    def _inputs(self) -> list[Any]:
        return self.state.fresh_values(self.reference.written)

    def _has_equal_generators(self) -> bool:
        after = self.expected.generators
        return all(torch.equal(state, after[d]) for d, state in self.outcome.generators.items())
