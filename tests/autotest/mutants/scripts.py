"""The printed scripts of found bugs, each in a fresh process: with the bug it must fail, without it pass."""

import itertools
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from planted import Library

import oneflow

from .registry import MUTANTS

FOLDER = Path(__file__).resolve().parents[1]
JOBS = 2
# The script imports the buggy library by this name.
BUGGY = """import os, sys
from mutants import behavior, numeric
from mutants.scripts import library
sys.modules["buggy"] = library(os.environ["PLANTED_BUG"])
"""


def library(name):
    """Return oneflow with the planted bug of this name; without a bug for an empty name."""
    replaced = next((m.replaced for m in MUTANTS if m.name == name), {})
    return Library(oneflow, **replaced)


def script_of(report):
    return report.split("-" * 78)[1].lstrip("\n")


def says_why(report):
    """Whether a report says that its script cannot fail alone."""
    return "did not fail again" in report or "cannot repeat" in report or "script can only repeat" in report


def ran(folder, index, mutant, report):
    """Return (mutant, report, last line with the bug, last line without it)."""
    file = folder / f"{mutant.name}_{index}.py"
    file.write_text(script_of(report))
    lines = []
    for name in (mutant.name, ""):
        path = os.pathsep.join([str(folder), str(FOLDER)])
        environment = {**os.environ, "PYTHONPATH": path, "PLANTED_BUG": name}
        process = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment)
        text = process.stderr if process.returncode else process.stdout
        lines.append((process.returncode, text.strip().rpartition("\n")[2]))
    return mutant, report, *lines


def run_scripts(reports, count):
    """Run `count` scripts, and print those that do not do what their report says."""
    failed = explained = passed = total = 0
    found = list(itertools.islice(reports, count))  # before there are threads, because each is found in a fork
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(JOBS) as pool:
        folder = Path(name)
        (folder / "buggy.py").write_text(BUGGY)
        jobs = [
            pool.submit(ran, folder, index, mutant, report)
            for index, (mutant, report) in enumerate(found)
        ]
        for job in jobs:
            mutant, report, (code, with_bug), (clean_code, without_bug) = job.result()
            total += 1
            failed += code != 0
            explained += code == 0 and says_why(report)
            passed += clean_code == 0
            if not (code or says_why(report)) or clean_code:
                print(f"{mutant.name}: {with_bug} (exit {code}); without the bug: {without_bug} ({clean_code})")
                print("    " + report.splitlines()[0], flush=True)
    print(
        f"{failed} of {total} scripts fail alone, {explained} say why they cannot; {passed} pass without the bug"
    )
