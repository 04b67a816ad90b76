"""The history of a test suite: which tests fail in some runs only.

    pytest --autotest-history history.jsonl
    python -m oneflow_autotest.history history.jsonl [--runs N]

Each run adds a line of JSON for each test. The program prints the tests that failed in the last runs, those
first that fail in some runs and pass in others.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .summary import Outcome

RUNS = 30


def add(file: str, runs: Mapping[str, tuple[str, Outcome]]) -> None:
    """Add {test: ("passed", "failed" or "skipped", outcome)} of one run to a history file."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        for test, (result, outcome) in runs.items():
            line = {"date": now, "test": test, "result": result} | dict(outcome.properties())
            out.write(json.dumps(line) + "\n")


def read(file: str) -> list[dict[str, Any]]:
    """Return the lines of a history file, oldest first.

    Raises ValueError with the number of a line that is not JSON.
    """
    lines = []
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            raise ValueError(
                f"{file}, line {number}: a line of JSON was expected, found {line[:60]!r}"
            ) from None
    return lines


def table(lines: list[dict[str, Any]], runs: int = RUNS) -> list[dict[str, Any]]:
    """Return the tests that failed in their last `runs` runs, those first that also passed."""
    by_test: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["result"] != "skipped":
            by_test[line["test"]].append(line)
    rows = []
    for test, all_runs in by_test.items():
        last = all_runs[-runs:]
        failures = [line for line in last if line["result"] == "failed"]
        if failures:
            checks = dict.fromkeys(line.get("autotest_check", "") for line in failures)
            rows.append(
                {
                    "test": test,
                    "runs": len(last),
                    "failures": len(failures),
                    "rate": len(failures) / len(last),
                    "last": failures[-1]["date"],
                    "checks": ", ".join(filter(None, checks)),
                    "seed": failures[-1].get("autotest_seed", ""),
                }
            )
    return sorted(rows, key=lambda row: (row["rate"] == 1, -row["failures"], row["test"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m oneflow_autotest.history",
        description="Print the tests that failed in the last runs, flaky ones first.",
    )
    parser.add_argument("file", help="the file of --autotest-history")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs that count (default {RUNS})")
    arguments = parser.parse_args()
    try:
        rows = table(read(arguments.file), arguments.runs)
    except (OSError, ValueError) as e:
        parser.error(str(e))
    print("failed/runs  last failure               seed        test: checks")
    for row in rows:
        flaky = "" if row["rate"] == 1 else "  flaky"
        print(
            f"{row['failures']:>5}/{row['runs']:<5} {row['last']:26} {row['seed']:11} {row['test']}:"
            f" {row['checks'] or 'error'}{flaky}"
        )
    print(
        f"{sum(row['rate'] < 1 for row in rows)} flaky, {sum(row['rate'] == 1 for row in rows)} always fail"
    )


if __name__ == "__main__":
    main()
