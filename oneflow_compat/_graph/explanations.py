"""Why a graph has more programs than one: the records behind `graph.explain()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import first_line, location_text, raised_at
from .program.live_numbers import NumberNeeded
from .program.random_functions import samples

if TYPE_CHECKING:
    from .errors import CodeLocation, Specialization
    from .guards.failure import Failure
    from .program.program import Program


@dataclass(frozen=True)
class Explanation:
    """One fact that costs another program."""

    subject: str  # the changed thing: "dimension 1 of the argument 'x'"
    reason: str
    location: CodeLocation | None = None  # line of the user's code

    def __str__(self) -> str:
        location = f"\n  {location_text(self.location)}" if self.location is not None else ""
        return f"{self.subject}: {self.reason}{location}"


def of_failure(failure: Failure, count: int) -> Explanation:
    """Return the guard that failed: the latest change of its value, and how often it changed."""
    is_shown = failure.old or failure.new  # a value that no program repeats is not shown
    values = f" from {failure.old} to {failure.new}" if is_shown else ""
    changes = "this change" if count == 1 else f"each of {count} changes"
    reason = f"changed{values}; another program was made for {changes}"
    return Explanation(f"guard of {failure.label}", reason, failure.code_location)


def of_specialization(item: Specialization, for_each_size: bool) -> Explanation:
    """Return why a dimension is no symbol."""
    sizes = "each size" if for_each_size else f"the size {item.size}"
    cause = "compares it with a number" if item.is_compared else "needs it as a number"
    reason = f"{sizes} has its own program, because build() {cause}"
    return Explanation(f"dimension {item.dim} of the argument {item.name!r}", reason, item.location)


def of_static_sizes(error: BaseException, action: str = "captured") -> Explanation:
    """Return why no dimension is a symbol, from the error of build(), or of the compiler ("compiled")."""
    location, cause = getattr(error, "location", None) or raised_at(error), error.__cause__ or error
    reason = f"build() could not be {action} with symbols ({type(cause).__name__}: {first_line(cause)})"
    return Explanation("each set of sizes has its own program", reason, location)


def of_constant_options(error: BaseException) -> Explanation:
    """Return why an option of an optimizer is no input, from the error of build()."""
    cause = error.__cause__ or error
    detail = "" if isinstance(cause, NumberNeeded) else f" ({type(cause).__name__}: {first_line(cause)})"
    reason = f"each value has its own program, because build() needs it as a number{detail}"
    return Explanation("an option of an optimizer that build() reads", reason, raised_at(error))


def of_repeated_change(failure: Failure | None) -> Explanation:
    """Return what build() changes in each call, so that its program serves one call."""
    if failure is None:
        return Explanation("build()", "each call meets new state of an optimizer")
    return Explanation("build()", f"each call meets {failure.label}", failure.code_location)


def of_lead(error: BaseException, location: CodeLocation) -> Explanation:
    """Return why the first lines of a step, up to this one, run in Python."""
    reason = f"they run in Python before each run of the program, because {first_line(error)}"
    return Explanation(f"first lines of {location[2]}, up to this one", reason, location)


def of_tail(error: BaseException, location: CodeLocation) -> Explanation:
    """Return why the last lines of a step, from this one on, run in Python."""
    reason = f"they run in Python after each run of the program, because {first_line(error)}"
    return Explanation(f"lines of {location[2]}", reason, location)


def of_eager_calls(reason: str) -> Explanation:
    """Return why calls ran in eager mode."""
    return Explanation("calls in eager mode", reason)


def of_changed_options(optimizer: int, names: Iterable[str]) -> Explanation:
    """Return why options of an optimizer, which were constants of the first program, cost another one."""
    reason = "changed, which some schedules do; later programs take any value of it"
    return Explanation(f"option {', '.join(sorted(names))} of optimizer {optimizer}", reason)


def of_samplers(programs: Iterable[Program], backend_options: Mapping[str, Any]) -> list[Explanation]:
    """Name inductor's own samplers if the user chose them."""
    if backend_options.get("fallback_random", True):
        return []
    if not any(samples(node.target) for program in programs for node in program.graph.nodes):
        return []
    reason = "inductor's own samplers give other numbers than eager (backend option fallback_random=False)"
    return [Explanation("random numbers of compiled programs", reason)]


def explained(
    name: str,
    programs: Sequence[Program],
    explanations: Iterable[Explanation],
    proofs: Sequence[Sequence[str]] = (),
) -> str:
    """Return the programs of a graph with the sizes they serve, and what keeps them from serving more.

    `proofs`: for each program, what was compared with the captured operators.
    """
    lines = [f"graph {name}: {len(programs)} program{'s' * (len(programs) != 1)}"]
    for index, program in enumerate(programs):
        arguments = ", ".join(f"{s.name} {list_text(s.shape)}" for s in program.slots if s.role == "arg")
        conditions = f" where {' and '.join(program.dimensions.conditions)}" if program.dimensions else ""
        lines.append(f"{index}: {arguments or 'no tensor arguments'}{conditions}")
        lines += [f"  {line}" for line in (proofs[index] if index < len(proofs) else ())]
    return "\n".join([*lines, *map(str, explanations)])


def list_text(shape: Iterable[int | str] | None) -> str:
    """Return a shape as text, symbols without quotes; nothing in the brackets for a number."""
    return f"[{', '.join(map(str, shape or ()))}]"
