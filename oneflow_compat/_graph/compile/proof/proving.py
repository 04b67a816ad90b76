"""A compiled region that is proved before its results are used."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import user_location
from .. import compiling
from ..call_wrapper import OUT_OF_BOUNDS
from ..copies import generator_states, set_generator_states
from . import records
from .first_difference import CompilePrefix, described, first_difference
from .proof import Proof, compared
from .runs import Reference

if TYPE_CHECKING:
    from ...program.program import CompiledFunction

FIRST, NEVER = "first", "never"
Compiled = TypeVar("Compiled", bound=Callable[..., Sequence[Any]])  # a function over the inputs of a region
Verify = str | int  # FIRST, NEVER, or the number of calls after which one is compared again


@dataclass
class Subject:
    """What is proved, and how.

    `compile_prefix` compiles a part of the region, to find the operator that is wrong.
    """

    name: str  # name of the graph
    reference: Reference
    verify: Verify = FIRST
    has_own_samplers: bool = False
    compile_prefix: CompilePrefix | None = None
    log: list[str] = field(default_factory=list)  # lines of graph.explain()


def proved(function: Compiled, subject: Subject | None) -> Compiled:
    """Return a function that compares `function` with the captured operators at its first call, unless a
    proof of it is on disk. Without a subject, nothing is compared.
    """
    if subject is None or subject.verify == NEVER:
        return function
    return cast("Compiled", Proved(function, subject))


def proof_of_call(
    function: CompiledFunction, subject: Subject, values: Sequence[Any]
) -> tuple[Sequence[Any], Proof]:
    """Run a compiled region for a call. Return the results and the proof, which names a wrong operator."""
    call = compared(function, subject.reference, values, subject.has_own_samplers)
    proof, compile_prefix = call.proof, subject.compile_prefix
    if not proof.holds and compile_prefix is not None:
        after = generator_states(values)
        with compiling:
            operator = first_difference(subject.reference, compile_prefix, call.before)
        set_generator_states(after)  # the search has sampled
        proof = replace(proof, operator=operator)
    return call.results, proof


class Proved:
    """A compiled region and its state: not proved yet, proved, or refused."""

    __name__ = "region"  # torch.fx names the node of a call by it

    def __init__(self, function: CompiledFunction, subject: Subject) -> None:
        self.function, self.subject = function, subject
        self.is_refused = False
        self.current: CompiledFunction = self._first
        self._calls, self._line = 0, ""
        self._turn = threading.Lock()
        proof = getattr(function, "proof", None) or records.load(self._library)
        if proof is not None and proof.holds:
            self._accept(proof, "a proof on disk")
        elif proof is not None:
            self._refuse(proof, "a proof on disk")

    def __call__(self, *values: Any) -> Sequence[Any]:
        try:
            return self.current(*values)
        except Exception as error:
            # The region may be wrong for these values only, so the next call is compared.
            if not self.is_refused and not str(error).startswith(OUT_OF_BOUNDS):
                self.current = self._first
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["function"], name)

    @property
    def _library(self) -> str | None:
        library: str | None = getattr(self.function, "library", None)
        return library

    def _first(self, *values: Any) -> Sequence[Any]:
        if not self._turn.acquire(blocking=False):  # another thread proves it
            return self.subject.reference.function()(*values)
        try:
            return self._compared(values)
        finally:
            self._turn.release()

    def _compared(self, values: tuple[Any, ...]) -> Sequence[Any]:
        results, proof = proof_of_call(self.function, self.subject, values)
        records.keep(self._library, proof)
        if proof.holds:
            self._accept(proof, f"call {self._calls}" if self._calls else "the first call")
        else:
            self._refuse(proof, "this call")
        return results

    def _accept(self, proof: Proof, occasion: str) -> None:
        self._note(f"{_agreement(proof)} ({occasion})")
        every = self.subject.verify
        self.current = self._counted if isinstance(every, int) else self.function

    def _note(self, line: str) -> None:
        """Keep the latest line about this region."""
        log = self.subject.log
        if self._line in log:
            log[log.index(self._line)] = line
        else:
            log.append(line)
        self._line = line

    def _counted(self, *values: Any) -> Sequence[Any]:
        self._calls += 1
        every = self.subject.verify
        if isinstance(every, int) and self._calls % every == 0:
            return self._first(*values)
        return self.function(*values)

    def _refuse(self, proof: Proof, occasion: str) -> None:
        self.is_refused, self.current = True, self.subject.reference.function()
        message = refusal(self.subject, proof)
        self._note(f"refused: {message} ({occasion})")
        file, line, _ = user_location() or (__file__, 0, "")
        warnings.warn_explicit(f"graph {self.subject.name}: {message}", UserWarning, file, line)


def refusal(subject: Subject, proof: Proof) -> str:
    """Return what differs, from which operator on, and what follows."""
    reference = subject.reference
    first = proof.differences[0]
    more = f" (and {len(proof.differences) - 1} more)" if len(proof.differences) > 1 else ""
    lines = [f"the compiled program is wrong and is not used: {first.subject} {first.detail}{more}"]
    if proof.operator is not None:
        lines.append(f"the first operator that differs is {described(reference.graph, proof.operator)}")
    elif first.result is not None:
        nodes = list(reference.graph.nodes)
        position = nodes.index(reference.results[first.result])
        lines.append(f"it is the result of {described(reference.graph, position)}")
    lines.append("the captured operators (the aten backend) run instead")
    return "; ".join(lines)


def _agreement(proof: Proof) -> str:
    if proof.excluded is not None:
        return f"only layouts were compared with the captured operators, because {proof.excluded}"
    rounding = f"equal up to {proof.largest:.1g} of their scale" if proof.largest else "equal bit for bit"
    text = f"{proof.tensors} tensors compared with the captured operators: {rounding}"
    judged = [e for e in proof.evidence if e in ("float64", "perturbation")]
    if judged:
        text += f", judged by {' and '.join(judged)}"
    if proof.parts > 1:
        text += f", in {proof.parts} parts for lack of memory"
    return f"{text}; {proof.seconds:.2f} s, {proof.bytes / 2**20:.0f} MiB"
