"""The records of `make upstream`: a JSON file with all differing tests, and the table of
docs/compatibility.md.
"""

from __future__ import annotations

import datetime
import json
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from upstream_suites import SUITES, Suite, Unit
from upstream_verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "tests" / "upstream" / "results.json"
PAGE = ROOT / "docs" / "compatibility.md"
_IN_PAGE = re.compile(r"(?<=<!-- tests/upstream/upstream_run\.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
README = ROOT / "README.md"
_TOTALS = re.compile(
    r"[\d,]+ of [\d,]+( \[tests of PyTorch and )\w+( libraries\].*? as with plain torch, and )[\d,]+"
)
OF_PYTORCH = {"torch-2.13", "torch-2023-04", "torch-wheel"}
COLUMNS = (
    (
        "| tests of | file | torch | sample | run | fail with plain torch | equal | differ, with a"
        " reason | date |"
    ),
    "|---|---|---|---|---|---|---|---|---|",
)

Record = dict[str, Any]


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout, from git or from a file COMMIT in it."""
    if (checkout / ".git").exists():
        command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    file = checkout / "COMMIT"
    return file.read_text(encoding="utf-8").strip() if file.exists() else "unknown"


def record_of(verdict: Verdict, suite: Suite, unit: Unit, sources: Path) -> Record:
    """Return the record of a unit's run."""
    return {
        "suite": verdict.suite,
        "unit": verdict.unit,
        "commit": commit_of(ROOT if suite.is_ours else sources / suite.folder),
        "package": commit_of(ROOT),
        "reused": verdict.is_reused,
        "sample": unit.sample,
        "torch": metadata.version("torch"),
        "oneflow": metadata.version("oneflow-compat"),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "tests": verdict.tests,
        "skipped": verdict.skipped,
        "failed_with_torch": verdict.failed_with_torch,
        "unstable": [*verdict.unstable],
        "explained": len(verdict.explained),
        "notes": verdict.notes,
        "unexplained": verdict.unexplained,
    }


def with_records(records: list[Record], newer: list[Record]) -> list[Record]:
    """Return the records with newer ones, which replace those of the same unit, in the order of the
    suites.
    """
    keys = [(suite.name, unit.path) for suite in SUITES for unit in suite.units]
    merged = {(record["suite"], record["unit"]): record for record in [*records, *newer]}
    return [merged[key] for key in keys if key in merged]


def table(records: list[Record]) -> str:
    """Return the Markdown table of the records."""
    titles = {suite.name: suite.title for suite in SUITES}
    rows = []
    for record in records:
        sample = record["sample"]  # a text if the time was limited
        if not isinstance(sample, str):
            sample = "all" if sample == 1 else f"{100 * sample:g} %"
        equal = record["tests"] - record["explained"] - len(record["unexplained"])
        if notes := record.get("notes"):
            equal = f"{equal} ({', '.join(f'{count} {note}' for note, count in sorted(notes.items()))})"
        torch = record["torch"].partition("+")[0]
        cells = [titles[record["suite"]], f"`{record['unit']}`", torch, sample, record["tests"]]
        date = record["date"] + (" (reused)" if record.get("reused") else "")
        cells += [record["failed_with_torch"], equal, record["explained"], date]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*COLUMNS, *rows])


def page_text(records: list[Record], text: str) -> str:
    """Return the text of compatibility.md with the table of the records."""
    return _IN_PAGE.sub(lambda match: table(records) + "\n", text)


def readme_text(records: list[Record], text: str) -> str:
    """Return the text of the README with the totals of the suites that plain torch can run, too."""
    baseline = {suite.name for suite in SUITES if suite.baseline}
    compared = [record for record in records if record["suite"] in baseline]
    libraries = len({r["suite"] for r in compared} - OF_PYTORCH)
    tests = sum(record["tests"] for record in compared)
    differ = sum(record["explained"] + len(record["unexplained"]) for record in compared)
    return _TOTALS.sub(
        lambda match: f"{tests - differ:,} of {tests:,}{match[1]}{libraries}{match[2]}{differ:,}", text
    )


def write_records(newer: list[Record]) -> None:
    """Add records to the JSON file, and write the table anew."""
    earlier = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []
    records = with_records(earlier, newer)
    RECORDS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_text(records, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(readme_text(records, README.read_text(encoding="utf-8")), encoding="utf-8")
