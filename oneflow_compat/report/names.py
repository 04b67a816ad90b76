"""The names of oneflow and torch in the files that a script ran, and what they are here."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from ..scan import names_in
from ..scan.files import read
from ..scan.findings import Finding, Findings
from ..scan.lookup import find

TORCH_ITSELF = "torch, not through this package"
TORCH_OBJECT = "torch's own object"
OWN = "a function or class of this package"
MODULE = "module"
UNKNOWN = "known at run time only"


@dataclass
class NameUse:
    """A name, what it is, and where the files use it."""

    name: str
    goes_to: str
    locations: list[str] = field(default_factory=list)  # "train.py:12"


def files_of_run(script: str) -> list[str]:
    """Return the script and the modules below its folder that were imported, without installed packages."""
    script = os.path.realpath(script)
    folder = os.path.dirname(script) + os.sep
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
    files = {script: None}
    for module in list(sys.modules.values()):
        file = os.path.realpath(getattr(module, "__file__", None) or "")
        is_installed = f"{os.sep}site-packages{os.sep}" in file or file.startswith(
            (package, sys.prefix + os.sep)
        )
        # torch._ops gives its modules a name that is no file
        if file.startswith(folder) and file.endswith(".py") and os.path.isfile(file) and not is_installed:
            files[file] = None
    return list(files)


def names_of_run(files: list[str], is_mocked: bool) -> tuple[list[NameUse], list[Finding]]:
    """Return the names in these files, and the rows of the table of differences about them.

    `is_mocked`: `import torch` gave oneflow, so torch's names go through this package.
    """
    uses: dict[str, NameUse] = {}
    findings = Findings()
    for file in files:
        names = names_in(read(file), file)
        findings.add_file(file, names)
        for use in names.uses:
            name = use.name.replace("()", "")
            record = uses.setdefault(name, NameUse(name, _goes_to(use.name, is_mocked)))
            record.locations.append(f"{os.path.basename(file)}:{use.line}")
    rows = [f for f in findings.ranked() if is_mocked or f.library == "oneflow"]
    return sorted(uses.values(), key=lambda use: (use.goes_to, use.name)), rows


def _goes_to(name: str, is_mocked: bool) -> str:
    if name.startswith("torch") and not is_mocked:
        return TORCH_ITSELF
    target = find(name)
    if target.missing or target.is_uncertain:
        return UNKNOWN
    if isinstance(target.value, type(sys)):
        return MODULE
    return TORCH_OBJECT if target.value is _in_torch(target.path) else OWN


def _in_torch(path: str) -> Any:
    value: Any = importlib.import_module("torch")
    for segment in path.split(".")[1:]:
        value = getattr(value, segment, None)
    return value
