"""Run other projects' test suites under the drop-in import, and compare each test with plain torch.

    python tests/upstream/upstream_run.py SOURCES                     all suites whose checkouts are in SOURCES
    python tests/upstream/upstream_run.py SOURCES --suite torch-2.13  one suite
    python tests/upstream/upstream_run.py SOURCES --suite torch-2.13 --file test_nn_xpu.py
    python tests/upstream/upstream_run.py --seconds 600 --seed 1      tests of the tables in torch's wheel

Each unit (a file or folder of tests) runs with plain torch and under `oneflow.mock_torch`. Tests that differ
run once more on both sides; a test that then agrees counts as unstable. Exit status 1 if a test differs
without a reason in `tests/upstream/SUITE.toml`, or if a test with a reason does not differ.

Journals in `build/upstream` hold what ran, so an interrupted run continues. They are dropped if the tests,
torch or this package changed; `--reuse` keeps those of an older state of this package. A run of all tests of
a unit is recorded in `tests/upstream/results.json` and in `docs/compatibility.md`; `--sample` and `--seconds`
try a part, which `--record` records. The suites that need no checkout run if SOURCES is not given.
"""  # noqa: E501

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import upstream_process
from upstream_process import Run, checkout_of, outcomes_of, read_journal
from upstream_report import ROOT, record_of, write_records
from upstream_suites import SUITES, Suite, Unit
from upstream_verdict import (
    Verdict,
    differing,
    expected_without_baseline,
    judge,
    read_reasons,
    repeated_differences,
)

HERE = Path(__file__).parent
PACKAGE = ROOT / "oneflow_compat"


@dataclass(frozen=True)
class Settings:
    """The folders of a run, and whether journals of an older state of this package count.

    `seconds` limits the time of one unit of share 1 on one side, or is 0. The order of tests depends on
    `seed`.
    """

    sources: Path
    journals: Path
    reasons: Path
    reuse: bool = False
    seconds: float = 0
    seed: int = 0


def digest_of_files(files: list[Path]) -> str:
    """Return a digest of the contents of files."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def prepare(run: Run, settings: Settings, package: str) -> Run:
    """Drop the journal of a run if it belongs to other tests, another torch or another state of this
    package.
    """
    path = run.root / run.unit.path
    tests = digest_of_files([*path.rglob("*.py")] if path.is_dir() else [path])
    key = [
        tests,
        metadata.version("torch"),
        sys.version,
        repr(run.unit),
        repr(run.suite.options),
        repr(run.only),
        str(run.seed),
    ]
    text = "\n".join(key)
    key_file = run.journal.with_suffix(".key")
    needed = text if run.side == "torch" or settings.reuse else f"{text}\n{package}"
    if not key_file.exists() or not key_file.read_text(encoding="utf-8").startswith(needed):
        for suffix in (".jsonl", ".log"):
            run.journal.with_suffix(suffix).unlink(missing_ok=True)
        run.journal.parent.mkdir(parents=True, exist_ok=True)
        key_file.write_text(f"{text}\n{package}", encoding="utf-8")
    return run


def verdict_of(suite: Suite, unit: Unit, settings: Settings) -> Verdict:
    """Run a unit on both sides, repeat the tests that differ, and judge."""
    package = digest_of_files([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.so")])
    folder = settings.journals / suite.name

    def outcomes(
        side: str, only: tuple[str, ...] | None = None, suffix: str = "", budget: float = 0
    ) -> dict[str, upstream_process.Outcome]:
        journal = folder / side / f"{unit.path.replace('/', '+')}{suffix}.jsonl"
        run = Run(suite, unit, settings.sources, side, journal, only, settings.seed, budget)
        if only is not None or budget:
            run.journal.unlink(missing_ok=True)
        return outcomes_of(prepare(run, settings, package))

    def both(
        only: tuple[str, ...] | None = None, suffix: str = "", budget: float = 0
    ) -> tuple[dict[str, upstream_process.Outcome], ...]:
        """Run both sides. With a time limit, the second side runs the tests that the first one had
        time for.
        """
        if not suite.baseline:
            here = outcomes("oneflow", only, suffix, budget)
            return expected_without_baseline(here), here
        torch = outcomes("torch", only, suffix, budget)
        return torch, outcomes("oneflow", tuple(torch) if budget else only, suffix)

    budget = settings.seconds * unit.share
    torch, here = both(budget=budget, suffix=".sample" if budget else "")
    first = differing(torch, here)
    again = repeated_differences(first, *both(first, ".again")) if first else ()
    reasons = read_reasons(settings.reasons, suite.name)
    verdict = judge(suite, unit, torch, here, again, reasons, is_complete=not budget)
    key = folder / "oneflow" / f"{unit.path.replace('/', '+')}{'.sample' if budget else ''}.key"
    return replace(verdict, is_reused=not key.read_text(encoding="utf-8").endswith(package))


def run_units(
    units: list[tuple[Suite, Unit]], settings: Settings, jobs: int
) -> Iterator[tuple[Verdict, int]]:
    """Judge the units in parallel, with a line that shows the progress. Yield each verdict with its index."""
    start, done_units = time.monotonic(), 0
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(verdict_of, *unit, settings): index for index, unit in enumerate(units)}
        try:
            while futures:
                done, _ = wait(futures, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result(), futures.pop(future)
                done_units += len(done)
                _show_progress(done_units, len(units), settings, time.monotonic() - start)
        except BaseException:
            upstream_process.STOP.set()
            raise
    if sys.stdout.isatty():
        print()


def _show_progress(done: int, units: int, settings: Settings, seconds: float) -> None:
    """Show how many units are done, how many results the journals have, and the time."""
    if sys.stdout.isatty():
        results = sum(len(read_journal(file)[0]) for file in settings.journals.rglob("*.jsonl"))
        print(f"\r\033[K{done}/{units} units, {results} results, {seconds:.0f} s", end="", flush=True)


def _show_verdict(verdict: Verdict) -> None:
    """Print the verdict on a unit: one line, then the tests that need attention."""
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(
        f"{clear}{verdict.suite} {verdict.unit}: {verdict.tests} tests, {verdict.failed_with_torch}"
        f" fail with torch,"
        f" {len(verdict.explained)} differ with a reason, {len(verdict.unexplained)} without,"
        f" {len(verdict.unstable)} unstable, {len(verdict.stale)} stale reasons",
        flush=True,
    )
    for test, texts in verdict.unexplained.items():
        print(f"  differs without a reason: {test} ({texts})")
    for test in verdict.stale:
        print(f"  has a reason but does not differ, or is gone; delete its line: {test}")


def chosen_suites(arguments: argparse.Namespace) -> list[Suite]:
    """Return the suites that the arguments name, or all whose checkouts are there."""
    by_name = {suite.name: suite for suite in SUITES}
    is_checkout = arguments.sources is not None
    arguments.sources = (arguments.sources or HERE).resolve()
    if arguments.suite:
        if unknown := [name for name in arguments.suite if name not in by_name]:
            sys.exit(f"there is no suite {unknown[0]!r}; the suites are {', '.join(by_name)}")
        suites = [by_name[name] for name in arguments.suite]
    elif is_checkout:
        suites = [s for s in SUITES if not s.is_ours and checkout_of(s, arguments.sources).is_dir()]
    else:
        suites = [suite for suite in SUITES if suite.is_ours]
    for suite in suites:
        if not checkout_of(suite, arguments.sources).is_dir():
            folder = checkout_of(suite, arguments.sources)
            sys.exit(f"suite {suite.name} needs the checkout {folder}, which is not there")
        missing = [package for package in suite.packages if find_spec(package) is None]
        if missing:
            sys.exit(f"suite {suite.name} imports {', '.join(missing)}; install them into {sys.prefix}")
    return suites


def chosen_units(arguments: argparse.Namespace) -> list[tuple[Suite, Unit]]:
    """Return the units that the arguments name and whose checkouts are there."""
    units = [(suite, unit) for suite in chosen_suites(arguments) for unit in suite.units]
    if arguments.file:
        units = [(suite, unit) for suite, unit in units if unit.path in arguments.file]
    if not units:
        sys.exit("no unit is chosen: name checkouts, suites and files that upstream_suites.py has")
    return [(suite, replace(unit, sample=unit.sample * arguments.sample)) for suite, unit in units]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sources", type=Path, nargs="?", help="a folder of checkouts, named as in upstream_suites.py"
    )
    parser.add_argument("--suite", nargs="*", help="names of suites")
    parser.add_argument("--file", nargs="*", help="units of the suites")
    parser.add_argument("--jobs", type=int, default=1, help="units that run at a time")
    parser.add_argument("--sample", type=float, default=1.0, help="the fraction of tests that run")
    parser.add_argument(
        "--seconds", type=float, default=0, help="the time that all units share; not recorded"
    )
    parser.add_argument("--seed", type=int, default=0, help="the order of the tests, if the time is limited")
    parser.add_argument("--record", action="store_true", help="record a part, too")
    parser.add_argument("--fresh", action="store_true", help="drop the journals of earlier runs")
    parser.add_argument(
        "--reuse", action="store_true", help="keep journals of an older state of this package"
    )
    arguments = parser.parse_args()
    journals = ROOT / "build" / "upstream"
    units = chosen_units(arguments)
    if arguments.fresh:
        for suite, _ in units:
            shutil.rmtree(journals / suite.name, ignore_errors=True)
    shares = sum(unit.share * (1 + suite.baseline) for suite, unit in units)
    settings = Settings(
        arguments.sources, journals, HERE, arguments.reuse, arguments.seconds / shares, arguments.seed
    )
    is_good = True
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the processes of the tests, too
    try:
        for verdict, index in run_units(units, settings, arguments.jobs):
            _show_verdict(verdict)
            is_good = is_good and verdict.is_good
            if arguments.record or arguments.sample == 1 and not arguments.seconds:
                record = record_of(verdict, *units[index], arguments.sources)
                if arguments.seconds:
                    record["sample"] = f"seed {arguments.seed}"
                write_records([record])
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues")
        return 130
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
