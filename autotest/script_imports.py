"""The imports of a printed script, which runs in a fresh process and from any folder."""

from __future__ import annotations

import inspect
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pair import Pair


def imports(pair: Pair, source: str) -> str:
    """Return the imports that the source needs, and the folders on the path that the imports need."""
    candidate = candidate_import(pair)
    modules = re.findall(r"^(?:from|import) ([\w.]+)", f"{candidate}\n{source}", re.M)
    folders = dict.fromkeys(filter(None, map(folder_of, modules)))
    standard = ["operator"] if re.search(r"\boperator\.", source) else []
    standard += ["sys"] if folders else []
    lines = [f"import {name}" for name in standard] + ([""] if standard else [])
    if re.search(r"\bnp\.", source):
        lines.append("import numpy as np")
    lines.append("import torch")
    lines += [f"\nsys.path.insert(0, {folder!r})" for folder in folders]
    return "\n".join([*lines, candidate])


def candidate_import(pair: Pair) -> str:
    """Return the line that imports the candidate as `flow`, after a comment if that needs a module first."""
    candidate = pair.candidate
    name = getattr(candidate, "__name__", None)
    if name and sys.modules.get(name) is candidate:
        return f"import {name} as flow"
    if (
        inspect.isclass(candidate)
        and getattr(sys.modules.get(candidate.__module__), name or "", None) is candidate
    ):
        return f"from {candidate.__module__} import {name} as flow"
    if path := global_variable(candidate):
        return "from {} import {} as flow".format(*path)
    name = name or pair.names[1]
    return (
        f"# The candidate is an object of the test, so save it as {name}.py on the path of this script.\n"
        f"import {name} as flow"
    )


def global_variable(value: Any) -> tuple[str, str] | None:
    """Return (module, name) of a global variable with this value, in a module that can be imported again."""
    for module_name, module in list(sys.modules.items()):
        if module_name == "__main__" or not getattr(module, "__file__", None):
            continue
        for name, other in list(vars(module).items()):
            if other is value and name.isidentifier():
                return module_name, name
    return None


def folder_of(module_name: str) -> str | None:
    """Return the folder on the path that has this module; None for an installed one, which needs no line."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:
        return None
    path, parts = Path(file), module_name.split(".")
    path = path.parent if path.stem == "__init__" else path.with_suffix("")
    root = path.parents[len(parts) - 1]
    installed = {Path(folder) for folder in sysconfig.get_paths().values()}
    return None if root in installed or root.joinpath(*parts) != path else str(root)
