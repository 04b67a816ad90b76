"""Warnings and errors for what a program does not follow."""

from collections.abc import Callable
from typing import Any

from ..errors import CaptureError, ReadNotFollowed, location_text, warn_user

_INSTEAD = (
    "It is read once, at the capture, and is a constant of the program. Pass it to build() as an argument, or"
    " keep it in an attribute that is set before the call"
)


def unfollowed_lines(unfollowed: Any) -> list[str]:
    """One line for each value that has no guard."""
    lines = []
    for site, what in unfollowed:
        expression = f"{site.expression!r}, " if site is not None else ""
        location = site.code_location if site is not None else None
        lines.append(f"{expression}{what}; {location_text(location)}")
    return list(dict.fromkeys(lines))


def read_after_step(cls: type, name: str) -> CaptureError:
    return CaptureError(
        f"the step reads {name!r} of {cls.__name__} after the step of this schedule",
        "Read it before, or outside of the step.",
    )


def not_followed(site: Any, what: str) -> ReadNotFollowed:
    """Return the error of a read that has no guard."""
    (line,) = unfollowed_lines([(site, what)])
    return ReadNotFollowed(
        f"build() reads what no guard follows: {line.partition(';')[0]}", f"{_INSTEAD}.", site.code_location
    )


def report_unfollowed(
    name: str, unfollowed: Any, strict: bool, is_first_report: Callable[[str], bool]
) -> None:
    """Warn once of each value without a guard; raise CaptureError if `strict`."""
    lines = [line for line in unfollowed_lines(unfollowed) if strict or is_first_report(line)]
    if not lines:
        return
    listed = "".join(f"\n  {line}" for line in lines)
    if strict:
        location = next((site.code_location for site, _ in unfollowed if site is not None), None)
        raise CaptureError(
            f"graph {name} is strict, and its program would not follow what build() reads:{listed}",
            f"{_INSTEAD}; graph.config.strict(False) makes this a warning.",
            location,
        )
    warn_user(
        f"graph {name}: the program does not follow what build() reads:{listed}\n{_INSTEAD};"
        " graph.config.strict(True) makes this an error."
    )


def report_mode(name: str, guard: Any) -> None:
    """Tell that a module is in another mode than at the first call."""
    module = guard.name or "a module"
    warn_user(
        f"graph {name}: {module} is {guard.current()!r} now, but a graph keeps the mode of its first call"
        f" ({guard.value!r}), as in OneFlow. Make one graph for train() and one for eval()."
    )


_REPEATS = 8


def report_repeated(name: str, label: str | None, times: int) -> None:
    """Warn once if the same value made program after program."""
    if times == _REPEATS:
        warn_user(
            f"graph {name}: {label!r} had another value at {times} calls, and each value makes a program of"
            " its own. Pass it to build() as a tensor, or keep it in a buffer that is changed in place."
        )


def report_local_code(name: str, code: str, times: int) -> None:
    """Warn once if the arguments hold a function or class that is made anew for call after call."""
    if times == _REPEATS:
        warn_user(
            f"graph {name}: the arguments of {times} calls held the {code}, made anew each time, and each one"
            " makes a program of its own. Make it once, and pass what changes as a tensor or a number."
        )


def compared_with_argument(cls: type) -> CaptureError:
    """Return the error of a comparison by identity that has another outcome in build() than in eager mode."""
    return CaptureError(
        f"build() compares an object of the class {cls.__qualname__} by identity with an argument that is"
        " this object, or holds it; a graph gives build() another object in its place",
        "Compare by equality, or let a text, a number or a member of an enum be the mark.",
    )
