"""Rows of names with planted bugs, for the tests of the parity suite."""

import torch
from planted import Library

import oneflow
from oneflow_autotest.pair import Pair
from oneflow_autotest.parity import samples, table
from oneflow_autotest.parity.checks import Checker


def row_of(name, explain=lambda name: "", known=None, **planted):
    """Return the row of a name; `planted` replaces names of oneflow."""
    library = Library(**planted) if planted else oneflow
    row = table.new_row(f"oneflow.{name}", "oneflow")
    reference = candidate = None
    for part in name.split("."):
        reference, candidate = getattr(reference or torch, part), getattr(candidate or library, part)
    checker = Checker(Pair(torch, library, ("torch", "here")), explain, known=known)
    info = samples.modules().get(name.removeprefix("nn."))
    if info is not None:
        checker.module(row, info, reference, candidate)
    else:
        checker.function(row, samples.operators()[name], reference, candidate)
    return row


def statuses(row):
    return {c: table.status(row, c) for c in table.COLUMNS if c not in ("cuda", "cpu")}


def recorded(*rows):
    """Return what differs in the rows, as known differences."""
    return {
        row["name"]: {c: cell["differences"] for c, cell in row["cells"].items() if "differences" in cell}
        for row in rows
    }
