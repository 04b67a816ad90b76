"""Findings: one row of the table of differences, or one missing name, with every location and a rank."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from .._tables.differences import DIFFERENCES
from . import lookup
from .names import FileNames
from .rules import Edit, rules_of
from .uses import Use

RANKS = ("breaks", "changes numbers", "cosmetic", "superset")
NOT_IN_TORCH = "not-in-torch"


@dataclass(frozen=True)
class Location:
    """One use of a finding's name. `is_fixable`: --fix edits this call."""

    file: str
    line: int
    column: int
    name: str
    is_fixable: bool = False


@dataclass
class Finding:
    """One difference that affects a code base, with its reason.

    `id` is a row of the table of differences, a missing name, or `NOT_IN_TORCH`.
    """

    rank: str
    id: str
    library: str
    oneflow: str
    here: str
    reason: str = ""
    locations: list[Location] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return sorted({location.name for location in self.locations})

    @property
    def fixable(self) -> int:
        return sum(location.is_fixable for location in self.locations)


class Findings:
    """Collect the findings of a code base, file by file."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Finding] = {}
        self.names: set[str] = set()

    def ranked(self) -> list[Finding]:
        """Return the findings, ordered by rank (worst first), then by number of uses."""
        return sorted(
            self._by_key.values(),
            key=lambda f: (RANKS.index(f.rank), f.id == NOT_IN_TORCH, -len(f.locations), f.id),
        )

    def add_file(self, file: str, names: FileNames) -> list[tuple[ast.Call, list[Edit]]]:
        """Add the findings of one file; return the calls that --fix edits."""
        roots = {
            use.name.partition(".")[0] for use in names.uses if not use.name.startswith("oneflow.mock_torch")
        }
        edited: dict[int, tuple[ast.Call, list[Edit]]] = {}
        for use in names.uses:
            self.names.add(use.name.replace("()", ""))
            target = lookup.find(use.name)
            library = use.name.partition(".")[0]
            stays_torch = library == "torch" and "oneflow" in roots  # the file uses both and means torch
            if target.missing:
                if not _is_provided_for(use, target, names):
                    self._add_missing(file, use, target, stays_torch)
            elif not (use.mentioned or target.is_uncertain or stays_torch):
                edits = self._add_rows(file, use, target, library)
                if edits and use.call is not None:
                    edited.setdefault(id(use.call), (use.call, edits))
        return list(edited.values())

    def _add_missing(self, file: str, use: Use, target: lookup.Target, stays_torch: bool) -> None:
        location = Location(file, use.line, use.column, _spelled(target.path, use))
        if not use.name.startswith("torch."):
            self._locate(Finding("breaks", target.path, "oneflow", "", target.missing), location)
        elif not lookup.is_in_torch(target.path):
            import torch  # only needed for the version

            reason = f"the installed torch {torch.__version__} does not have these names either"
            self._locate(Finding("breaks", NOT_IN_TORCH, "torch", "", reason), location)
        elif not stays_torch:
            self._locate(
                Finding(
                    "breaks",
                    target.path,
                    "torch",
                    "",
                    f"torch has this name, and the package has not: {target.missing}",
                ),
                location,
            )

    def _add_rows(self, file: str, use: Use, target: lookup.Target, library: str) -> list[Edit]:
        edits: list[Edit] = []
        for id in lookup.row_ids(target):
            rules = rules_of(library, id, target.path)
            matching = (
                None if rules is None else next((rule for rule in rules if rule.matches(use.call)), None)
            )
            if rules is not None and matching is None:
                continue
            row: dict[str, Any] = DIFFERENCES[id]
            planned = matching.edits(use.call) if matching is not None and use.call is not None else []
            location = Location(file, use.line, use.column, _spelled(target.path, use), bool(planned))
            self._locate(
                Finding(row["severity"][library], id, library, row["oneflow"], row["here"], row["reason"]),
                location,
            )
            edits += planned
        return edits

    def _locate(self, finding: Finding, location: Location) -> None:
        kept = self._by_key.setdefault((finding.library, finding.id), finding)
        if location not in kept.locations[-2:]:  # an operator and a method in one expression count as one use
            kept.locations.append(location)


def _spelled(path: str, use: Use) -> str:
    """Return the path with the name of the program's library."""
    return use.name.partition(".")[0] + path.removeprefix("oneflow")


def _is_provided_for(use: Use, target: lookup.Target, names: FileNames) -> bool:
    attribute = target.path.rpartition(".")[2]
    return use.guarded or use.stored or attribute in names.probed or attribute in names.stored
