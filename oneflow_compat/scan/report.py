"""The report of a scan: a summary that fits on one screen, the full text, and JSON."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass, field
from typing import Any

from .files import Skipped
from .findings import RANKS, Finding

SCREEN_LINES = {"breaks": 5, "changes numbers": 4}  # findings that the summary shows; two lines each
MEANING = {
    "breaks": "the program raises",
    "changes numbers": "the program computes other values",
    "cosmetic": "text, layout, dtype, speed, or unusual input",
    "superset": "the program keeps its meaning",
}


@dataclass
class Report:
    """The findings of a scan."""

    findings: list[Finding]
    files: int
    names: int
    skipped: list[Skipped] = field(default_factory=list)
    fixed_calls: int = 0
    fixed_files: int = 0

    def of_rank(self, rank: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.rank == rank]

    @property
    def exit_code(self) -> int:
        """Return 0 for cosmetic findings at most, 1 if something breaks, 3 if numbers change, 2 if no file
        was read.
        """
        if not self.files:
            return 2
        return 1 if self.of_rank("breaks") else 3 if self.of_rank("changes numbers") else 0

    def as_json(self) -> dict[str, Any]:
        findings = []
        for finding in self.findings:
            entry = dataclasses.asdict(finding)
            findings.append({**entry, "names": finding.names})
        return {
            "findings": findings,
            "files": self.files,
            "names": self.names,
            "skipped": [dataclasses.asdict(s) for s in self.skipped],
            "fixed_calls": self.fixed_calls,
            "fixed_files": self.fixed_files,
            "exit_code": self.exit_code,
        }


def printable(string: str) -> str:
    """Return text without control characters, which file names may hold."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in string
    )


def _shortened(string: str, width: int) -> str:
    return string if len(string) <= width else string[: width - 3] + "..."


def _names(finding: Finding, limit: int | None) -> str:
    names = finding.names
    shown = ", ".join(names[:limit])
    return shown if limit is None or len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _head(finding: Finding, limit: int | None) -> str:
    names = _names(finding, limit)
    return names if finding.id == names else f"{finding.id}: {names}"


def _explanation(finding: Finding) -> str:
    return f"OneFlow: {finding.oneflow}. Here: {finding.here}" if finding.reason else finding.here


def _summary_lines(finding: Finding, width: int) -> list[str]:
    location = finding.locations[0]
    file, limit = printable(location.file), width // 2 - 20
    file = file if len(file) <= limit else "..." + file[3 - limit :]
    where = f"{len(finding.locations)}x, {file}:{location.line}" + (", --fix" if finding.fixable else "")
    head = _shortened(_head(finding, 2), width - len(where) - 5)
    return [f"  {head}  [{where}]", "    " + _shortened(_explanation(finding), width - 4)]


def _rank_head(rank: str, findings: list[Finding]) -> str:
    uses = sum(len(finding.locations) for finding in findings)
    return f"{rank}: {_count(len(findings), 'finding')}, {_count(uses, 'use')} ({MEANING[rank]})"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def summary(report: Report) -> str:
    """Return a one-screen report: the worst findings of the two upper ranks, and the number of cosmetic
    findings.
    """
    width = max(60, min(shutil.get_terminal_size((110, 24)).columns, 140)) - 1
    lines = []
    for rank in RANKS[:-1]:
        findings = report.of_rank(rank)
        if not findings:
            continue
        lines.append(_rank_head(rank, findings))
        limit = SCREEN_LINES.get(rank, 0)
        for finding in findings[:limit]:
            lines += _summary_lines(finding, width)
        if limit and len(findings) > limit:
            lines.append(f"  and {len(findings) - limit} more; --all lists them")
    return "\n".join([*lines, *_closing(report)])


def full(report: Report) -> str:
    """Return every finding with the text of its row and every location."""
    lines = []
    for rank in RANKS:
        findings = report.of_rank(rank)
        if findings:
            lines.append(_rank_head(rank, findings))
        for finding in findings:
            lines += [f"  {_head(finding, None)}", f"    {_explanation(finding)}"]
            lines += [f"    why: {finding.reason}"] if finding.reason else []
            lines += [
                f"      {printable(loc.file)}:{loc.line}:{loc.column + 1} "
                f" {loc.name}{'  (--fix)' * loc.is_fixable}"
                for loc in finding.locations
            ]
    return "\n".join([*lines, *_closing(report)])


def _closing(report: Report) -> list[str]:
    fixable = sum(finding.fixable for finding in report.findings)
    lines = [
        f"{_count(report.files, 'file')}, {_count(report.names, 'name')}"
        + (f", {len(report.skipped)} not read" if report.skipped else "")
    ]
    if report.fixed_calls:
        lines.append(
            f"--fix edited {_count(report.fixed_calls, 'call')} in {_count(report.fixed_files, 'file')}"
        )
    if fixable:
        lines.append(f"--fix edits {_count(fixable, 'call')} so that both libraries agree")
    return lines
