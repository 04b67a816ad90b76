"""The matrix as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .snippet_parts import WHOLE_PARTS
from .table import COLUMNS, alias_counts, counts, headline, status

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
    "differs": "differs exactly as is known, by a row of the table of differences",
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
        "The same calls on both libraries, also with strided tensors: results, shapes, dtypes, refusals.",
        "torch has no counterpart; another column judges this name",
        "eager",
    ),
    "errors": (
        "Calls that torch refuses: both libraries raise related classes of errors.",
        "torch's table of operators has no wrong calls for this name",
        "errors",
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
        "reference",
    ),
    "golden": ("Calls that were recorded from OneFlow 0.9.0.", "no recorded call uses this name", "eager"),
    "dtypes": (
        "The eager check for other dtypes; the number counts them.",
        "the samples exist for one dtype only",
        "dtypes",
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


def write(
    rows: list[Row], path: str | Path, title: str = "parity", header: dict[str, Any] | None = None
) -> None:
    """Write the page, with the header of the run if there is one."""
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
        headline=headline(rows),
        header=header or {},
        filters=FILTERS,
        details={r["name"]: _details(r) for r in rows},
        parts=list(WHOLE_PARTS),
    )
    Path(path).write_text(html, encoding="utf-8")


def _details(row: Row) -> dict[str, Any]:
    """Return what the dialogs of a row show. Scripts have short forms of the parts that they share."""
    cells = {}
    for column, cell in row["cells"].items():
        shown = {key: cell[key] for key in ("status", "detail", "script") if key in cell}
        if column == "dtypes" and row.get("dtypes") and cell["status"] == "pass":
            shown["detail"] = ", ".join(row["dtypes"])
        if "script" in shown:
            shown["script"] = _shortened(shown["script"])
        cells[column] = shown
    scripts = {column: _shortened(script) for column, script in row.get("scripts", {}).items()}
    return {"cells": cells, "left_out": row["left_out"], "scripts": scripts}


def _shortened(script: str) -> str:
    for i, part in enumerate(WHOLE_PARTS):
        script = script.replace(part, f"#part{i}\n")
    return script


def _shown_row(row: Row) -> Row:
    cells = [{"column": c, "status": status(row, c), "mark": _mark(row, c)} for c in COLUMNS]
    has = {status(row, c) for c in COLUMNS} | ({"left"} if row["left_out"] else set())
    return {"name": row["name"], "left_out": row["left_out"], "cells": cells, "has": " ".join(sorted(has))}


def _mark(row: Row, column: str) -> str:
    if column == "dtypes" and row.get("dtypes") and status(row, column) == "pass":
        return str(len(row["dtypes"]))
    return MARKS[status(row, column)]


def _sums(rows: list[Row]) -> list[tuple[str, str]]:
    """Return (value, label) of the boxes. Those of a comparison with torch leave out torch's own objects."""
    by_column, executed = counts(rows, own_only=True)
    aliases = alias_counts(rows)
    sums = [
        (f"{executed} / {len(rows)}", "names run"),
        (f"{aliases['compared']}", "compared with torch's"),
        (f"{aliases['aliases']}", f"torch's own object, {aliases['aliases_not_judged']} judged by nothing"),
    ]
    for column in COLUMNS[1:]:
        count = by_column[column]
        good, total = count.get("pass", 0), sum(n for s, n in count.items() if s != "none")
        labels = [column] + [
            f"{count[s]} {verb}"
            for s, verb in (("fail", "fail"), ("differs", "differ"), ("refused", "refused"))
            if count.get(s)
        ]
        if total:
            sums.append((f"{good} / {total}", ", ".join(labels)))
    return sums
