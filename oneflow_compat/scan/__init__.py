"""python -m oneflow.scan PATH...: report how a code base behaves with this package.

The scan reads source text (ast) and never imports it. It checks every oneflow name, and every torch name as
if `import torch` were `import oneflow as torch`. It ranks its findings by the table of differences.
"""

import gc
import os
import sys
from typing import Iterable

from . import files, fixes
from .files import Skipped
from .findings import Finding, Findings, Location
from .lookup import judge
from .names import FileNames, names_in
from .report import Report
from .uses import Use

__all__ = ["FileNames", "Finding", "Location", "Report", "Skipped", "Use", "judge", "names_in", "scan"]

RECURSION_LIMIT = 6000  # generated code often contains sums of a thousand terms


def scan(paths: Iterable[str | os.PathLike[str]], fix: bool = False) -> Report:
    """Scan every .py file at or below `paths`. `fix` edits the calls that can be fixed automatically."""
    findings = Findings()
    report = Report([], 0, 0)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
    collects = gc.isenabled()
    gc.disable()  # speed: each collection walks all of torch, and freeing syntax trees needs none
    try:
        for file in files.python_files(paths, report.skipped):
            try:
                _scan_file(file, findings, report, fix)
            except (
                Exception
            ) as error:  # no file content may end the scan, not even with RecursionError or MemoryError
                report.skipped.append(Skipped(file, files.describe(error)))
    finally:
        if collects:
            gc.enable()
        sys.setrecursionlimit(limit)
    report.findings, report.names = findings.ranked(), len(findings.names)
    return report


def _scan_file(file: str, findings: Findings, report: Report, fix: bool) -> None:
    source = files.read(file)
    names = names_in(source, file)
    calls = Findings().add_file(file, names) if fix else []
    if calls:
        changed, count = fixes.fixed_source(source, calls)
        if count:
            fixes.write(file, changed)
            names = names_in(changed, file)
            report.fixed_calls += count
            report.fixed_files += 1
    findings.add_file(file, names)
    report.files += 1
