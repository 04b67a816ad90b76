"""The header of a run: what was run, on what, when and with which counts."""

from __future__ import annotations

import platform
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .table import Row, alias_counts, counts

Header = dict[str, Any]


def run_header(rows: list[Row], folder: str | Path, version: str, started: float) -> Header:
    """Return the header of a run that began at `started`, a time.time().

    folder: a folder of the checkout. version: the version of the candidate's package.
    """
    import numpy as np
    import torch

    by_column, executed = counts(rows)
    return {
        "commit": commit_of(folder),
        "package": version,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "date": datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
        "names": len(rows),
        "executed": executed,
        **alias_counts(rows),
        "counts": {c: {s: n for s, n in sorted(by.items()) if s != "none"} for c, by in by_column.items()},
    }


def commit_of(folder: str | Path) -> str | None:
    """Return the commit of a checkout, with "+" behind it if files differ from it; None outside of one."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: str | Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def processor() -> str:
    """Return the model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
