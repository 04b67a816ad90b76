"""The matrix as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .table import COLUMNS, counts, status

if TYPE_CHECKING:
    from .table import Row

TEMPLATE = Path(__file__).with_name("page.html.jinja")

MARKS = {
    "pass": "✓",
    "same": "≡",
    "own": "own",
    "fail": "fails",
    "differs": "differs",
    "refused": "refused",
    "none": "·",
}
STATUSES = {
    "pass": "agrees on every sample",
    "fail": "disagrees; the detail says where",
    "differs": "differs on purpose, by a row of the table of differences",
    "refused": "the library says that it cannot do this",
    "same": "the very same object as torch's",
    "own": "an object of its own, not torch's",
    "none": "not checked, because the check does not apply to this name",
}
# column: what is checked, why a cell can be empty, and which script of the row repeats it
MEANINGS = {
    "identity": (
        "Whether the name is torch's own object.",
        "the name was not compared with torch's",
        "identity",
    ),
    "eager": (
        "The same calls on both libraries: results, shapes, dtypes, errors.",
        "torch has no counterpart; another column judges this name",
        "eager",
    ),
    "gradient": (
        "The gradients of inputs and parameters on both libraries.",
        "nothing here requires a gradient",
        "gradient",
    ),
    "graph": (
        "The same call as one nn.Graph against eager mode, with gradients.",
        "the samples hold no tensor, or backward runs inside the call",
        "graph",
    ),
    "reference": (
        "The result in float64 against NumPy, or an expression of torch that has the same meaning.",
        "torch's table of operators has no NumPy function for this name",
        "eager",
    ),
    "golden": ("Calls that were recorded from OneFlow 0.9.0.", "no recorded call uses this name", "eager"),
    "dtypes": (
        "The eager check for other dtypes; the number counts them.",
        "the samples exist for one dtype only",
        "eager",
    ),
    "cpu": ("The eager check on the CPU.", "the name was not run on the CPU", "eager"),
    "cuda": (
        "The eager check on a CUDA device.",
        "the machine that wrote this page has no CUDA device",
        "eager",
    ),
}
FILTERS = (
    ("", "all names"),
    ("fail", "failing"),
    ("differs", "documented differences"),
    ("refused", "refused as a graph"),
    ("left", "not run"),
)


def write(rows: list[Row], path: str | Path, title: str = "parity") -> None:
    """Write the page."""
    import jinja2  # a dependency of torch; the rest of this package does without it

    page = jinja2.Environment(autoescape=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    columns = {c: dict(zip(("meaning", "none", "script"), MEANINGS[c])) for c in COLUMNS}
    html = page.render(
        title=title,
        rows=[_shown_row(r) for r in rows],
        columns=columns,
        statuses=STATUSES,
        marks=MARKS,
        sums=_sums(rows),
        filters=FILTERS,
        details={
            r["name"]: {
                "cells": {c: _with_dtypes(r, c, cell) for c, cell in r["cells"].items()},
                "left_out": r["left_out"],
                "scripts": r.get("scripts", {}),
            }
            for r in rows
        },
    )
    Path(path).write_text(html, encoding="utf-8")


def _shown_row(row: Row) -> Row:
    cells = [{"column": c, "status": status(row, c), "mark": _mark(row, c)} for c in COLUMNS]
    has = {status(row, c) for c in COLUMNS} | ({"left"} if row["left_out"] else set())
    return {"name": row["name"], "left_out": row["left_out"], "cells": cells, "has": " ".join(sorted(has))}


def _mark(row: Row, column: str) -> str:
    if column == "dtypes" and row.get("dtypes") and status(row, column) == "pass":
        return str(len(row["dtypes"]))
    return MARKS[status(row, column)]


def _with_dtypes(row: Row, column: str, cell: dict[str, str]) -> dict[str, str]:
    return (
        {**cell, "detail": ", ".join(row["dtypes"])}
        if column == "dtypes" and row.get("dtypes") and cell["status"] == "pass"
        else cell
    )


def _sums(rows: list[Row]) -> list[tuple[str, str]]:
    by_column, executed = counts(rows)
    sums = [(f"{executed} / {len(rows)}", "names run")]
    for column in COLUMNS:
        count = by_column[column]
        good, total = (
            count.get("pass", 0) + count.get("same", 0),
            sum(n for s, n in count.items() if s != "none"),
        )
        labels = ["torch's own object" if column == "identity" else column] + [
            f"{count[s]} {verb}"
            for s, verb in (("fail", "fail"), ("differs", "differ"), ("refused", "refused"))
            if count.get(s)
        ]
        if total:
            sums.append((f"{good} / {total}", ", ".join(labels)))
    return sums
