"""Record what a test run found, and write from all records which versions of torch were tested.

    pytest ... --junitxml=results.xml
    python tests/tools/record_results.py results.xml --scope "the whole suite"

The interpreter that runs this script is the one that ran the tests. The records are `tests/results.json`.
From them come `CHECKED` in `oneflow_compat/_upstream/versions.py` and the table in `docs/compatibility.md`;
without results.xml, only these two are written anew. A scope with a failed test does not count as checked.
"""

import argparse
import datetime
import json
import platform
import re
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "tests" / "results.json"
VERSIONS = ROOT / "oneflow_compat" / "_upstream" / "versions.py"
PAGE = ROOT / "docs" / "compatibility.md"
_IN_VERSIONS = re.compile(r"(?<=# Written by tests/tools/record_results\.py\n)CHECKED.*?\n}\n", re.DOTALL)
_IN_PAGE = re.compile(r"(?<=<!-- tests/tools/record_results\.py -->\n).*?(?=\n<!-- end -->)", re.DOTALL)

Record = dict[str, str | int]


def counts(report: Path) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped, of a JUnit file."""
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for name in total:
            total[name] += int(suite.get(name, 0))
    failed = total["failures"] + total["errors"]
    passed = total["tests"] - failed - total["skipped"]
    return {"passed": passed, "failed": failed, "skipped": total["skipped"]}


def with_record(records: list[Record], record: Record) -> list[Record]:
    """Return the records with a new one, which replaces an older one of the same torch, Python and scope."""

    def key(r: Record) -> tuple[str, ...]:
        return str(r["torch"]), str(r["python"]), str(r["scope"])

    others = [r for r in records if key(r) != key(record)]
    return sorted([*others, record], key=lambda r: ([int(n) for n in str(r["torch"]).split(".")], *key(r)))


def versions_text(records: list[Record], text: str) -> str:
    """Return the text of versions.py with the versions whose scopes passed."""
    scopes: dict[str, list[str]] = {}
    for record in records:
        if not record["failed"] and record["scope"] not in scopes.setdefault(str(record["torch"]), []):
            scopes[str(record["torch"])].append(str(record["scope"]))
    lines = "".join(f'    "{torch}": "{", ".join(names)}",\n' for torch, names in scopes.items() if names)
    table = f"CHECKED: dict[str, str] = {{  # version -> the tests that passed\n{lines}}}\n"
    return _IN_VERSIONS.sub(lambda match: table, text)


def page_text(records: list[Record], text: str) -> str:
    """Return the text of compatibility.md with the table of records."""
    columns = ("torch", "python", "scope", "passed", "failed", "skipped", "date")
    rows = ["| torch | Python | tests | passed | failed | skipped | date |", "|---|---|---|---|---|---|---|"]
    rows += ["| " + " | ".join(str(record[c]) for c in columns) + " |" for record in records]
    return _IN_PAGE.sub(lambda match: "\n".join(rows), text)


def write(records: list[Record]) -> None:
    for file, text_of in ((VERSIONS, versions_text), (PAGE, page_text)):
        file.write_text(text_of(records, file.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("report", nargs="?", type=Path, help="the file that pytest --junitxml wrote")
    parser.add_argument("--scope", default="the whole suite", help="which tests ran")
    arguments = parser.parse_args()
    records: list[Record] = json.loads(RECORDS.read_text(encoding="utf-8"))
    if arguments.report is not None:
        record: Record = {
            "torch": metadata.version("torch").split("+")[0],
            "python": ".".join(platform.python_version_tuple()[:2]),
            "scope": arguments.scope,
            **counts(arguments.report),
            "date": datetime.date.today().isoformat(),
        }
        records = with_record(records, record)
        lines = ",\n".join("  " + json.dumps(r) for r in records)
        RECORDS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    write(records)


if __name__ == "__main__":
    main()
