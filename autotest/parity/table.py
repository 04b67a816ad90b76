"""Rows and cells of the matrix, as JSON and against a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COLUMNS = ("identity", "eager", "gradient", "graph", "reference", "golden", "dtypes", "cpu", "cuda")
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
Baseline = dict[str, dict[str, str]]  # name -> column -> status


class Failure(Exception):
    """A cell fails: `detail` in a line or two, `script` repeats it."""

    def __init__(self, detail: str, script: str = "") -> None:
        super().__init__(detail)
        self.detail, self.script = detail, script


class Refused(Exception):
    """The candidate itself says that it cannot do this."""


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


def status(row: Row, column: str) -> str:
    return row["cells"].get(column, {}).get("status", "none")


def executed(row: Row) -> bool:
    """Whether any check of this name ran."""
    return any(status(row, c) != "none" for c in COLUMNS if c not in ("identity", "cuda"))


def save(rows: list[Row], path: str | Path) -> None:
    Path(path).write_text(
        json.dumps({"format": 1, "columns": COLUMNS, "rows": sorted(rows, key=lambda r: r["name"])}, indent=1)
    )


def load(path: str | Path) -> list[Row]:
    return json.loads(Path(path).read_text())["rows"]


def baseline_of(rows: list[Row]) -> Baseline:
    """Return the content of a baseline: {name: {column: status}} of the cells that apply on every machine."""
    return {
        r["name"]: {c: status(r, c) for c in COLUMNS if c != "cuda" and status(r, c) != "none"}
        or {"left out": r["left_out"]}
        for r in rows
    }


def compare(rows: list[Row], baseline: Baseline) -> tuple[list[str], list[str]]:
    """Return (regressions, improvements) against a baseline, as lines of text."""
    now = baseline_of(rows)
    worse: list[str] = []
    better: list[str] = []
    for name, before in baseline.items():
        after = now.get(name)
        if after is None:
            worse.append(f"{name}: no longer in the matrix")
            continue
        for column in sorted({*before, *after} - {"left out"}):
            was, is_ = before.get(column, "none"), after.get(column, "none")
            if was != is_:
                (worse if RANK[is_] < RANK[was] else better).append(f"{name}, {column}: {was} -> {is_}")
    better += [f"{name}: new" for name in now.keys() - baseline.keys()]
    return worse, better


def counts(rows: list[Row]) -> tuple[dict[str, dict[str, int]], int]:
    """Return {column: {status: count}} and the number of names run."""
    out: dict[str, dict[str, int]] = {c: {} for c in COLUMNS}
    for row in rows:
        for c in COLUMNS:
            s = status(row, c)
            out[c][s] = out[c].get(s, 0) + 1
    return out, sum(executed(r) for r in rows)
