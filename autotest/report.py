"""The message of a failure: the difference, the smallest case as a script, the command to repeat it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import config
from .errors import Mismatch
from .script import script

if TYPE_CHECKING:
    from .case import Case


def annotate(
    error: Exception, case: Case, seed: int, test_id: str, attempts: int, flaky: bool = False
) -> Exception:
    """Return the error with the report after its message."""
    if hasattr(error, "__notes__"):
        error.__notes__.clear()  # Hypothesis's account of its own drawing
    body = report(error, case, seed, test_id, attempts, flaky)
    if isinstance(error, Mismatch):
        error.args = (f"{error}\n{body}",)
        error.report = body
        return error
    # the text of a KeyError is a repr
    if len(error.args) == 1 and isinstance(error.args[0], str) and not isinstance(error, KeyError):
        error.args = (f"{error.args[0]}\n{body}",)
    elif hasattr(error, "add_note"):
        error.add_note(body)
    else:
        print(body, file=sys.stderr)
    return error


def report(
    error: BaseException, case: Case, seed: int, test_id: str, attempts: int, flaky: bool = False
) -> str:
    """Return the smallest case as a script, and the command that repeats the test."""
    again = f"to run this test again with the same cases:\n    {command(seed, test_id)}\n"
    if not case.steps and not flaky:
        return f"\nthe test raised this before it used either library, so there is no case to show\n{again}"
    try:
        program = script(case, error)
    except Exception as e:  # the report must not hide what it reports
        program = f"(the script could not be written: {type(e).__name__}: {e})\n"
    what = f"smallest failing case found ({attempts} cases tried)"
    if flaky:
        what = (
            "failing case, which did not fail again when it was repeated (the test or the library is not"
            " deterministic)"
        )
    return f"\n{what}, as a script:\n{'-' * 78}\n{program}{'-' * 78}\n{again}"


REPEATED = ("N", "LIKE", "GRAPH", "GRAPH_BACKEND", "ERRORS", "CPU_ONLY")  # variables that choose the cases


def command(seed: int, test_id: str) -> str:
    """Return the command that runs the test again with the same cases."""
    variables = [f"ONEFLOW_TEST_SEED={seed}"]
    for name in (f"ONEFLOW_TEST_{name}" for name in REPEATED):
        if config.get(name) != config.VARIABLES[name][0]:
            variables.append(f"{name}={config.get(name)}")
    settings = " ".join(variables)
    where = config.get("PYTEST_CURRENT_TEST").rpartition(" ")[0]
    if where:
        return f'{settings} python -m pytest "{where}"'
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    name = test_id.partition("<locals>.")[2] or test_id.partition(".")[2]
    return f"{settings} python {file} {name}" if file else f"{settings}, then run {test_id}"
