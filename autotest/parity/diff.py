"""What changed between two runs of the matrix, or between a baseline and a run; as lines and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .table import COLUMNS, LEFT_OUT, RANK, Baseline, Row, status

TEMPLATE = Path(__file__).with_name("diff.html.jinja")

Cells = dict[str, dict[str, Any]]  # column -> cell
KINDS = {
    "worse": "Cells that got worse",
    "disappeared": "Cells and names that disappeared",
    "appeared": "Cells and names that appeared",
    "better": "Cells that got better",
}


@dataclass(frozen=True)
class Change:
    """One cell, or a whole name (`column` is ""), that is not what it was."""

    name: str
    column: str
    before: str
    after: str
    detail_before: str = ""
    detail_after: str = ""

    @property
    def kind(self) -> str:
        """Return the key of KINDS."""
        if self.after == "none":
            return "disappeared"
        if self.before == "none" and self.after != "fail":
            return "appeared"
        return "worse" if RANK[self.after] < RANK[self.before] else "better"

    @property
    def is_regression(self) -> bool:
        return self.kind in ("worse", "disappeared")

    def __str__(self) -> str:
        if not self.column:
            return f"{self.name}: {'no longer in the matrix' if self.after == 'none' else 'new'}"
        return f"{self.name}, {self.column}: {self.before} -> {self.after}"


def changes(before: dict[str, Cells], after: dict[str, Cells]) -> list[Change]:
    """Return all changes, by name."""
    return [c for name in sorted({*before, *after}) for c in _changes_of(name, before, after)]


def _changes_of(name: str, before: dict[str, Cells], after: dict[str, Cells]) -> Iterator[Change]:
    if name not in after:
        yield Change(name, "", "pass", "none")
    elif name not in before:
        # The cells of a new name are new, too; only one that fails is worth a line.
        yield Change(name, "", "none", "pass")
        was: Cells = {}
        failing = {c: cell for c, cell in after[name].items() if cell["status"] == "fail"}
        yield from _changed_cells(name, was, failing)
    else:
        yield from _changed_cells(name, before[name], after[name])


def _changed_cells(name: str, before: Cells, after: Cells) -> Iterator[Change]:
    nothing = {"status": "none"}
    for column in COLUMNS:
        was, now = before.get(column, nothing), after.get(column, nothing)
        if was["status"] != now["status"]:
            details = was.get("detail", ""), now.get("detail", "")
            yield Change(name, column, was["status"], now["status"], *details)


def cells_of_rows(rows: list[Row]) -> dict[str, Cells]:
    """Return the cells of a run that apply on every machine."""
    columns = [c for c in COLUMNS if c != "cuda"]
    return {r["name"]: {c: r["cells"][c] for c in columns if status(r, c) != "none"} for r in rows}


def cells_of_baseline(baseline: Baseline) -> dict[str, Cells]:
    """Return the cells of a baseline, which has no details."""
    return {
        name: {column: {"status": s} for column, s in cells.items() if column != LEFT_OUT}
        for name, cells in baseline.items()
    }


def described(header: dict[str, Any]) -> str:
    """Return the header of a run in a line."""
    keys = ("date", "commit", "package", "torch", "python", "numpy", "processor")
    return ", ".join(f"{k} {header[k]}" for k in keys if header.get(k)) or "another run"


def write(
    all_changes: list[Change], path: str | Path, before: str, after: str, title: str = "parity"
) -> None:
    """Write the page; `before` and `after` say what was compared."""
    import jinja2  # a dependency of torch; the rest of this package does without it

    template = jinja2.Environment(autoescape=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    sections = [(kind, label, [c for c in all_changes if c.kind == kind]) for kind, label in KINDS.items()]
    html = template.render(title=title, sections=sections, before=before, after=after)
    Path(path).write_text(html, encoding="utf-8")
