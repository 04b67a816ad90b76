"""Rows and cells of the matrix, as JSON and against a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .differences import difference

COLUMNS = (
    "identity",
    "eager",
    "errors",
    "gradient",
    "graph",
    "reference",
    "golden",
    "dtypes",
    "cpu",
    "cuda",
)
# Columns that compare a name with torch's name.
AGAINST_TORCH = ("eager", "errors", "gradient", "dtypes", "cpu", "cuda")
# pass, fail, differs (a documented difference), refused (says itself that it cannot), none (does not apply);
# in the column "identity": same (the very object of torch) or own
RANK = {"fail": 0, "none": 1, "refused": 2, "differs": 3, "pass": 4, "same": 4, "own": 4}
# functions whose values no library promises
FORM_ONLY = (
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "bernoulli_",
    "bernoulli",
    "uniform_",
    "normal_",
    "normal",
)


Row = dict[str, Any]  # a name of the API: "name", "group", "cells" by column, "left_out", "scripts"
LEFT_OUT = "left out"  # the key of a baseline for a name that was not run
Baseline = dict[str, dict[str, str]]  # name -> column -> status


class Failure(Exception):
    """A cell fails: `detail` in a line or two, `script` repeats it, `result` is what the candidate gave.

    `differences` has an entry for each sample that failed.
    """

    def __init__(self, detail: str, script: str = "", result: object = None) -> None:
        super().__init__(detail)
        self.detail, self.script, self.result = detail, script, result
        self.differences = [difference("", detail, result)]


class Refused(Exception):
    """The candidate itself says that it cannot do this. `script` repeats it."""

    def __init__(self, detail: str, script: str = "") -> None:
        super().__init__(detail)
        self.script = script


def form_only(row: Row) -> bool:
    return row["name"].rpartition(".")[2] in FORM_ONLY


def new_row(name: str, group: str) -> Row:
    return {"name": name, "group": group, "cells": {}, "left_out": "", "scripts": {}}


def put(row: Row, column: str, status: str, detail: str = "", script: str = "") -> None:
    cell = {"status": status}
    if detail:
        cell["detail"] = detail
    if script:
        cell["script"] = script
    row["cells"][column] = cell


def repeat(row: Row, column: str, checked: str) -> None:
    """Store the result of a checked column under another column, too."""
    cell = row["cells"].get(checked, {"status": "none"})
    put(row, column, cell["status"], cell.get("detail", ""), cell.get("script", ""))


def status(row: Row, column: str) -> str:
    return row["cells"].get(column, {}).get("status", "none")


def executed(row: Row) -> bool:
    """Whether any check of this name ran."""
    return any(status(row, c) != "none" for c in COLUMNS if c not in ("identity", "cuda"))


def save(rows: list[Row], path: str | Path, header: dict[str, Any] | None = None) -> None:
    """Write the rows, after the header of the run if there is one."""
    run = {} if header is None else {"run": header}
    ordered = sorted(rows, key=lambda r: r["name"])
    content = {"format": 1, **run, "columns": COLUMNS, "rows": ordered}
    Path(path).write_text(json.dumps(content, indent=1))


def load(path: str | Path) -> list[Row]:
    return json.loads(Path(path).read_text())["rows"]


def load_header(path: str | Path) -> dict[str, Any]:
    """Return the header of a run; {} if the file has none."""
    return json.loads(Path(path).read_text()).get("run", {})


def baseline_of(rows: list[Row]) -> Baseline:
    """Return the content of a baseline: {name: {column: status}} of the cells that apply on every machine."""
    return {
        r["name"]: {c: status(r, c) for c in COLUMNS if c != "cuda" and status(r, c) != "none"}
        or {LEFT_OUT: r["left_out"]}
        for r in rows
    }


def alias_counts(rows: list[Row]) -> dict[str, int]:
    """Return how many of the names that were run are compared, and how many are torch's own object.

    A comparison of an object with itself proves nothing: NumPy or recorded numbers judge such a name, or
    nothing does.
    """
    aliases = [r for r in rows if executed(r) and is_alias(r)]
    judged = sum(any(status(r, c) != "none" for c in ("reference", "golden")) for r in aliases)
    ran = sum(map(executed, rows))
    return {
        "compared": ran - len(aliases),
        "aliases": len(aliases),
        "aliases_judged": judged,
        "aliases_not_judged": len(aliases) - judged,
    }


def is_alias(row: Row) -> bool:
    return status(row, "identity") == "same"


def headline(rows: list[Row]) -> str:
    """Return the counts of a run in one sentence."""
    count = alias_counts(rows)
    return (
        f"{count['compared']} names compared, {count['aliases']} are torch's own object"
        f" ({count['aliases_judged']} of these judged by NumPy or recorded numbers,"
        f" {count['aliases_not_judged']} by neither)"
    )


def counts(rows: list[Row], own_only: bool = False) -> tuple[dict[str, dict[str, int]], int]:
    """Return {column: {status: count}} and the number of names run.

    own_only: leave out what compares torch's own object with itself.
    """
    out: dict[str, dict[str, int]] = {c: {} for c in COLUMNS}
    for row in rows:
        for c in COLUMNS:
            if own_only and c in AGAINST_TORCH and is_alias(row):
                continue
            s = status(row, c)
            out[c][s] = out[c].get(s, 0) + 1
    return out, sum(executed(r) for r in rows)
