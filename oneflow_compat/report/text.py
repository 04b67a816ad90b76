"""The report as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..scan.findings import Finding
from .graphs import GraphRecord
from .names import OWN, NameUse

_ADVICE = "no graph ran: flow.compile_step(train_step), or a class of nn.Graph, makes a step one program"
_MOST_NAMES = 20
_SHOWN_RANKS = ("breaks", "changes numbers")  # the others are counted


def as_text(graphs: Sequence[GraphRecord], names: Sequence[NameUse], rows: Sequence[Finding]) -> str:
    """Return the report: graphs, names, differences."""
    return "\n".join([*_graph_lines(graphs), "", *_name_lines(names), "", *_row_lines(rows)])


def _graph_lines(graphs: Sequence[GraphRecord]) -> list[str]:
    if not graphs:
        return [_ADVICE]
    width = max(len("graph"), *(len(g.name) for g in graphs))
    head = f"{'graph':{width}}  {'calls':>7}{'program':>9}{'eager':>7}"
    lines = [f"{head}{'captures':>10}{'capture, s':>12}  backend"]
    for graph in graphs:
        line = f"{graph.name:{width}}  {graph.calls:7}{graph.program_calls:9}{graph.eager_calls:7}"
        place = f", {graph.created[0]}:{graph.created[1]}" if graph.created else ""
        lines.append(
            f"{line}{graph.captures:10}{graph.capture_seconds:12.2f}  {graph.backend} ({graph.kind}{place})"
        )
        lines += [f"    fell back: {_indented(text)}" for text in dict.fromkeys(graph.fallbacks)]
        for reason in graph.reasons:
            lines.append(f"    {reason.subject}: {_indented(reason.reason)}")
            lines += [f"      {reason.location}"] if reason.location else []
    return lines


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def _name_lines(names: Sequence[NameUse]) -> list[str]:
    counts = Counter(use.goes_to for use in names)
    uses: Counter[str] = Counter()
    for use in names:
        uses[use.goes_to] += len(use.locations)
    lines = [f"{'names in the files that ran':38}{'names':>7}{'uses':>7}"]
    lines += [f"{goes_to:38}{count:7}{uses[goes_to]:7}" for goes_to, count in counts.most_common()]
    own = [use for use in names if use.goes_to == OWN]
    lines += [f"    {use.name}  {use.locations[0]}" for use in own[:_MOST_NAMES]]
    if len(own) > _MOST_NAMES:
        lines.append(f"    and {len(own) - _MOST_NAMES} more; --json has all")
    return lines


def _row_lines(rows: Sequence[Finding]) -> list[str]:
    if not rows:
        return ["no row of the table of differences is about these names"]
    lines = ["differences (python -m oneflow --difference ID explains each)"]
    for row in (row for row in rows if row.rank in _SHOWN_RANKS):
        location = row.locations[0]
        place = f"{len(row.locations)}x, {location.file.rpartition('/')[2]}:{location.line}"
        lines.append(f"    {row.rank:16}{row.id}: {', '.join(row.names[:3])}  [{place}]")
    counts = Counter(row.rank for row in rows if row.rank not in _SHOWN_RANKS)
    lines += [f"    {rank}: {count}; --json has them" for rank, count in counts.items()]
    return lines


def as_json(
    script: str, status: int, graphs: Sequence[GraphRecord], names: Sequence[NameUse], rows: Sequence[Finding]
) -> dict[str, Any]:
    """Return the report as JSON data."""
    return {
        "script": script,
        "exit_code": status,
        "graphs": [
            {
                "name": graph.name,
                "kind": graph.kind,
                "created": list(graph.created[:2]) if graph.created else None,
                "calls": graph.calls,
                "program_calls": graph.program_calls,
                "eager_calls": graph.eager_calls,
                "failed_calls": graph.failed_calls,
                "captures": graph.captures,
                "capture_seconds": graph.capture_seconds,
                "backend": graph.backend,
                "fallbacks": list(dict.fromkeys(graph.fallbacks)),
                "reasons": [vars(reason) for reason in graph.reasons],
            }
            for graph in graphs
        ],
        "names": [vars(use) for use in names],
        "differences": [
            {
                "id": row.id,
                "rank": row.rank,
                "oneflow": row.oneflow,
                "here": row.here,
                "names": row.names,
                "locations": [f"{location.file}:{location.line}" for location in row.locations],
            }
            for row in rows
        ],
    }
