"""What is installed beside this package: other distributions that own files of the import package
`oneflow`.
"""

from __future__ import annotations

import os
import re

OWN_NAME = "oneflow_compat"
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def conflicting_distributions(folder: str = FOLDER) -> list[str]:
    """Return "name version" of each other distribution that installed files of `oneflow` into the same
    folder.
    """
    names = []
    for entry in sorted(os.listdir(folder)):
        match = re.fullmatch(r"(oneflow[^-]*)-(.+)\.dist-info", entry, re.IGNORECASE)
        if match and match[1].lower() != OWN_NAME and _owns_oneflow(os.path.join(folder, entry)):
            names.append(f"{match[1]} {match[2]}")
    return names


def _owns_oneflow(dist_info: str) -> bool:
    try:
        with open(os.path.join(dist_info, "RECORD"), encoding="utf-8", errors="replace") as record:
            return any(line.startswith("oneflow/") for line in record)
    except OSError:
        return False


def conflict_message(names: list[str]) -> str:
    """Return what is wrong if other distributions share our folder, and what to do."""
    packages = " ".join(name.split()[0] for name in names)
    return (
        f"{' and '.join(names)} installed files into the same folder as oneflow-compat"
        f" ({os.path.join(FOLDER, 'oneflow')}), so that files of both are mixed. Run `pip uninstall"
        f" {packages} oneflow-compat`, then install oneflow-compat again."
    )


def warn_about_conflicts() -> None:
    """Warn once, at import, if another distribution owns files of `oneflow`."""
    names = conflicting_distributions()
    if names:
        import warnings

        warnings.warn(conflict_message(names), RuntimeWarning, stacklevel=3)
