"""Run one unit of a suite on one side, in as many processes as it takes, and return what each test did."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from upstream_suites import Suite, Unit

HERE = Path(__file__).parent
MOST_PROCESSES = 40  # a file whose tests end this many processes is given up
COLLECTION_SECONDS = 600
NOT_RUN = "not run"  # pytest reports an internal error or wrong usage
STOP = threading.Event()  # ends all runs, because the user interrupted them


@dataclass(frozen=True)
class Outcome:
    """What a test did: a result of pytest, "timeout" or "crashed", and the class of the error with its bases.

    A test of torch's tables that passes has a digest of what its calls gave in `error`, and the texts in
    `details`. `note` says how a compiled step ran.
    """

    result: str
    error: str = ""
    bases: tuple[str, ...] = field(default=(), compare=False)
    details: tuple[str, ...] = field(default=(), compare=False)
    note: str = field(default="", compare=False)

    def agrees_with(self, torch: Outcome) -> bool:
        """Whether the outcome is plain torch's. A subclass of torch's error agrees, because callers
        catch it.
        """
        return self == torch or self.result == torch.result and torch.error in self.bases

    def __str__(self) -> str:
        return f"{self.result} ({self.error})" if self.error else self.result

    def first_difference(self, torch: Outcome) -> str:
        """Return the first call whose outcome is not plain torch's, or both outcomes."""
        for expected, actual in zip(torch.details, self.details):
            if expected != actual:
                return f"torch: {expected}; here: {actual.partition(': ')[2]}"
        return f"torch: {torch}; here: {self}"


@dataclass(frozen=True)
class Run:
    """One unit on one side. `only` names the tests that run, or None for the sample of the unit.

    `budget` is how many seconds the tests may take in all; they then run in the order of `seed`.
    """

    suite: Suite
    unit: Unit
    sources: Path
    side: str
    journal: Path
    only: tuple[str, ...] | None = None
    seed: int = 0
    budget: float = 0

    @property
    def root(self) -> Path:
        """The folder in which pytest runs."""
        return checkout_of(self.suite, self.sources) / self.suite.root


def checkout_of(suite: Suite, sources: Path) -> Path:
    """Return the folder that has the files of a suite: one in SOURCES, or one beside this file."""
    return HERE / suite.folder if suite.is_ours else sources / suite.folder


def read_journal(journal: Path) -> tuple[dict[str, Outcome], str | None]:
    """Return the outcomes that a journal holds, and the test that has started but not ended."""
    outcomes: dict[str, Outcome] = {}
    running = None
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # the process ended within a line
                entry: dict[str, Any] = json.loads(line)
                running = entry["id"] if entry.get("started") else None
                if "result" in entry:
                    outcomes[entry["id"]] = Outcome(
                        entry["result"],
                        entry["error"],
                        tuple(entry.get("bases", ())),
                        tuple(entry.get("details", ())),
                        entry.get("note", ""),
                    )
    return outcomes, running


class RunnerError(RuntimeError):
    """pytest ended without running tests."""


def outcomes_of(run: Run) -> dict[str, Outcome]:
    """Run the tests that the journal does not have yet. Return the outcomes of all."""
    run.journal.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(MOST_PROCESSES):
        outcomes, _ = read_journal(run.journal)
        ended = _run_process(run, [*outcomes])
        outcomes, running = read_journal(run.journal)
        if running is None and ended == NOT_RUN:
            raise RunnerError(f"pytest could not run {run.unit.path}; see {run.journal.with_suffix('.log')}")
        if running is None:
            return outcomes
        with run.journal.open("a", encoding="utf-8") as file:
            lost = {"id": running, "result": "timeout" if ended == "timeout" else "crashed", "error": ""}
            file.write("\n" + json.dumps(lost) + "\n")
    return read_journal(run.journal)[0]


def _run_process(run: Run, done: list[str]) -> str:
    """Run pytest once. Return how it ended: "timeout", NOT_RUN, or "crashed" if a test has not ended."""
    suite = run.suite
    settings = {
        "drop_in": run.side == "oneflow" and suite.baseline,
        "journal": str(run.journal),
        "device": suite.device,
        "adapter": suite.adapter,
        "only": run.only,
        "done": done,
        "sample": run.unit.sample,
        "seed": run.seed,
        "budget": run.budget,
    }
    # A long list of tests does not fit into an environment variable.
    settings_file = run.journal.with_suffix(".settings.json")
    settings_file.write_text(json.dumps(settings), encoding="utf-8")
    environment = {
        **os.environ,
        "UPSTREAM": str(settings_file),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONHASHSEED": "0",
        **suite.environment,
    }
    paths = [str(HERE), suite.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, "-m", "pytest", "-p", "upstream_side", "-p", "pytest_timeout", "-q"]
    command += ["--continue-on-collection-errors"]
    command += ["-c", os.devnull, "--rootdir", str(run.root), "-p", "no:cacheprovider", "-W", "ignore"]
    command += [f"--timeout={suite.seconds}", "--timeout-method=signal", *suite.options, run.unit.path]
    with run.journal.with_suffix(".log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, cwd=run.root, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            ended = _wait(process, run)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        return NOT_RUN
    return ended


def _wait(process: subprocess.Popen[bytes], run: Run) -> str:
    """Wait until the process ends, or until its journal has not grown for too long."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        if STOP.is_set():
            raise KeyboardInterrupt
        now_size = run.journal.stat().st_size if run.journal.exists() else 0
        if now_size != size:
            size, since = now_size, time.monotonic()
        limit = 2 * run.suite.seconds + 30 if size > 0 else COLLECTION_SECONDS
        if time.monotonic() - since > limit:
            return "timeout"
    return "crashed"
