"""The message of a failure: the difference, the smallest case as a script, the command to repeat it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import config
from .errors import Mismatch
from .script import script

if TYPE_CHECKING:
    from .case import Case
    from .summary import Outcome


def annotate(error: Exception, case: Case, outcome: Outcome, test_id: str, flaky: bool = False) -> None:
    """Put the report after the message of the error, and its script into a file."""
    if hasattr(error, "__notes__"):
        error.__notes__.clear()  # Hypothesis's account of its own drawing
    body = report(error, case, outcome, test_id, flaky)
    if isinstance(error, Mismatch):
        error.args = (f"{error}\n{body}",)
        error.report = body
        return
    # the text of a KeyError is a repr
    if len(error.args) == 1 and isinstance(error.args[0], str) and not isinstance(error, KeyError):
        error.args = (f"{error.args[0]}\n{body}",)
    elif hasattr(error, "add_note"):
        error.add_note(body)
    else:
        print(body, file=sys.stderr)


def report(error: BaseException, case: Case, outcome: Outcome, test_id: str, flaky: bool = False) -> str:
    """Return the smallest case as a script, and the command that repeats the test."""
    again = f"to run this test again with the same cases:\n    {command(outcome.seed, test_id)}\n"
    if not case.steps and not flaky and not hasattr(error, "failed_step"):
        return f"\nthe test raised this before it used either library, so there is no case to show\n{again}"
    try:
        program = script(case, error)
    except Exception as e:  # the report must not hide what it reports
        program = f"(the script could not be written: {type(e).__name__}: {e})\n"
    else:
        outcome.script = save_script(program, test_id)
    what = f"smallest failing case found ({outcome.attempts} cases tried)"
    if flaky:
        what = (
            "failing case, which did not fail again when it was repeated (the test or the library is not"
            " deterministic)"
        )
    where = f"at {outcome.file}:{outcome.line}\n" if outcome.line else ""
    file = f" ({outcome.script})" if outcome.script else ""
    return f"{where}\n{what}, as a script{file}:\n{'-' * 78}\n{program}{'-' * 78}\n{again}"


def save_script(program: str, test_id: str) -> str:
    """Write the script of a failure, and return its path; "" if the folder is "none" or cannot be written."""
    folder = config.get("ONEFLOW_TEST_FAILURES")
    if folder == "none":
        return ""
    name = _running_test().replace(".py", "").replace("::", ".") or test_id
    file_name = re.sub(r"[^\w.-]+", "_", name.replace("/", "."))
    path = Path(folder) / f"{file_name[-150:]}.py"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program, encoding="utf-8")
    except OSError:  # the report has the script, too
        return ""
    return str(path)


def _running_test() -> str:
    """Return pytest's name of the running test, "" outside of pytest."""
    return config.get("PYTEST_CURRENT_TEST").rpartition(" ")[0]


REPEATED = ("N", "LIKE", "GRAPH", "GRAPH_BACKEND", "ERRORS", "CPU_ONLY")  # variables that choose the cases


def command(seed: int | None, test_id: str) -> str:
    """Return the command that runs the test again with the same cases."""
    variables = [f"ONEFLOW_TEST_SEED={seed}"]
    for name in (f"ONEFLOW_TEST_{name}" for name in REPEATED):
        if config.get(name) != config.VARIABLES[name][0]:
            variables.append(f"{name}={config.get(name)}")
    settings = " ".join(variables)
    where = _running_test()
    if where:
        return f'{settings} python -m pytest "{where}"'
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    name = test_id.partition("<locals>.")[2] or test_id.partition(".")[2]
    return f"{settings} python {file} {name}" if file else f"{settings}, then run {test_id}"
