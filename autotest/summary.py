"""Counts of the tests and cases of this process, for the pytest plugin and for measurements."""

from __future__ import annotations

totals = {"tests": 0, "cases": 0, "attempts": 0, "seconds": 0.0, "graphs": 0}
graph_refusals: dict[str, int] = {}  # reason: how many cases a graph could not be made for


def note(valid: int, attempts: int, seconds: float) -> None:
    """Count one test."""
    totals["tests"] += 1
    totals["cases"] += valid
    totals["attempts"] += attempts
    totals["seconds"] += seconds


def note_graph_refused(reason: str) -> None:
    """Count one case without a graph check."""
    graph_refusals[reason] = graph_refusals.get(reason, 0) + 1
