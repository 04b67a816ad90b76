"""The message of a failure: what differs, the smallest case as a script, and how to run it again."""
from __future__ import annotations

import sys

from . import config
from .errors import Mismatch


def annotate(error, case, seed, test_id, attempts, flaky=False):
    """The same kind of exception with the report behind its message."""
    if hasattr(error, "__notes__"):
        error.__notes__.clear()  # Hypothesis's account of its own drawing
    body = report(error, case, seed, test_id, attempts, flaky)
    if isinstance(error, Mismatch):
        error.args = (f"{error}\n{body}",)
        error.report = body
        return error
    if len(error.args) == 1 and isinstance(error.args[0], str) and not isinstance(error, KeyError):  # whose text is a repr
        error.args = (f"{error.args[0]}\n{body}",)
    elif hasattr(error, "add_note"):
        error.add_note(body)
    else:
        print(body, file=sys.stderr)
    return error


def report(error, case, seed, test_id, attempts, flaky=False):
    from .script import script

    again = f"to run this test again with the same cases:\n    {command(seed, test_id)}\n"
    if not case.steps and not flaky:
        return f"\nthe test raised this before it used either library, so there is no case to show\n{again}"
    try:
        program = script(case, error)
    except Exception as e:  # the report must not hide what it reports
        program = f"(the script could not be written: {type(e).__name__}: {e})\n"
    what = f"smallest failing case found ({attempts} cases tried)"
    if flaky:
        what = "failing case, which did not fail again when it was repeated (something in the test or the library is not deterministic)"
    return (
        f"\n{what}, as a script:\n"
        f"{'-' * 78}\n{program}{'-' * 78}\n{again}"
    )


def command(seed, test_id):
    where = config.get("PYTEST_CURRENT_TEST").rpartition(" ")[0]
    if where:
        return f'ONEFLOW_TEST_SEED={seed} python -m pytest "{where}"'
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    name = test_id.partition("<locals>.")[2] or test_id.partition(".")[2]
    return f"ONEFLOW_TEST_SEED={seed} python {file} {name}" if file else f"ONEFLOW_TEST_SEED={seed}, then run {test_id}"
