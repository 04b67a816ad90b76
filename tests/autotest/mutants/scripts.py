"""The printed scripts of found bugs: with the bug, in a fresh process, each must fail; without it, pass."""

import contextlib
import io
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from planted import Library

import oneflow

from .forks import in_a_fork
from .registry import MUTANTS

FOLDER = Path(__file__).resolve().parents[1]
# The script imports the buggy library by this name.
BUGGY = """import os, sys
from mutants import behavior, numeric
from mutants.scripts import library
sys.modules["buggy"] = library(os.environ["PLANTED_BUG"])
"""
# A report without a script says one of these.
EXPLANATIONS = ("so there is no case to show", "refused the graph of all")


def library(name):
    """Return oneflow with the planted bug of this name; without a bug for an empty name."""
    replaced = next((m.replaced for m in MUTANTS if m.name == name), {})
    return Library(oneflow, **replaced)


def script_of(report):
    """Return the script that a report shows, "" if it has none."""
    parts = report.split("-" * 78)
    return parts[1].lstrip("\n") if len(parts) > 1 else ""


def last_line_with_bug(folder, mutant, script):
    """Run a script in a fresh process, and return the last line that it prints."""
    file = folder / f"{mutant.name}.py"
    file.write_text(script)
    path = os.pathsep.join([str(folder), str(FOLDER)])
    environment = {**os.environ, "PYTHONPATH": path, "PLANTED_BUG": mutant.name}
    process = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment)
    text = process.stderr if process.returncode else process.stdout
    return text.strip().rpartition("\n")[2]


def last_line_without_bug(script):
    """Run a script with the library without a bug; call it in a fork, because it changes the process."""
    sys.modules["buggy"] = library("")
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(script, "script", "exec"), {"__name__": "__main__"})
    except BaseException as e:
        return f"{type(e).__name__}: {e}"
    return printed.getvalue().strip().rpartition("\n")[2]


def run_scripts(reports, count):
    """Run `count` scripts, and print those that do not do what their report says."""
    failed = explained = passed = total = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "buggy.py").write_text(BUGGY)
        for mutant, report in itertools.islice(reports, count):
            script = script_of(report)
            if not script:
                total += 1
                explained += any(text in report for text in EXPLANATIONS)
                continue
            with_bug = last_line_with_bug(folder, mutant, script)
            without_bug = in_a_fork(lambda: last_line_without_bug(script))
            total += 1
            fails = not with_bug.startswith("no difference")
            passes = without_bug.startswith("no difference")
            failed, passed = failed + fails, passed + passes
            if not passes or not fails:
                print(f"{mutant.name}: {report.splitlines()[0]}")
                print(f"    with the bug: {with_bug}\n    without it: {without_bug}", flush=True)
    print(
        f"{failed} of {total} reports have a script that fails alone, {explained} say why they have none;"
        f" {passed} scripts pass without the bug"
    )
