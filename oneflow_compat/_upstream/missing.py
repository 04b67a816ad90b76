"""Private names that the installed torch lacks: what ends without them, and the error that says so.

A release of torch may rename or remove a private name. Then one feature ends, with one error that names the
version of torch (`require`). A shortcut without its names is left out, and the public function of torch is
asked for a setting. `python -m oneflow --doctor` lists what is missing.
"""

from __future__ import annotations

import functools
import importlib
import re
from types import ModuleType
from typing import Any

import torch

from .._errors import OneFlowError
from .hooks import HOOKS
from .versions import CHECKED, torch_is_before


class MissingName(OneFlowError, ImportError):
    """The installed torch lacks a private name that a feature needs."""


@functools.cache
def require(feature: str) -> None:
    """Raise MissingName if torch lacks a name that a feature needs, one of `Hook.needed_by`."""
    for path, hook in HOOKS.items():
        if hook.needed_by == feature and not is_in_torch(path):
            raise MissingName(_message(feature, path))


def error_of(feature: str, error: Exception) -> Exception:
    """Return MissingName in place of an error that says that a name of the ledger is missing.

    Return any other error as it is.
    """
    if isinstance(error, (ImportError, AttributeError)) and not isinstance(error, MissingName):
        words = {*re.findall(r"\w+", str(error))}
        for path in HOOKS:
            if path.rpartition(".")[2] in words and not is_in_torch(path):
                return MissingName(_message(feature, path))
    return error


def missing_names() -> list[str]:
    """Return the names of the ledger that the installed torch lacks. Importing inductor takes seconds."""
    expected = (path for path, hook in HOOKS.items() if not (hook.since and torch_is_before(hook.since)))
    return [path for path in expected if not is_in_torch(path)]


def is_in_torch(path: str) -> bool:
    """Whether the installed torch has a name: "torch.optim.SGD._init_group"."""
    value: Any = torch
    module = "torch"
    for name in path.split(".")[1:]:
        module = f"{module}.{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            if not isinstance(value, ModuleType):
                return False
            try:
                value = importlib.import_module(module)
            except ImportError:
                return False
    return True


def _message(feature: str, path: str) -> str:
    return (
        f"{feature} needs {path} ({HOOKS[path].purpose}), which torch {torch.__version__} does not have;"
        f" install a version that this package was tested with: {', '.join(CHECKED) or '2.11 to 2.15'}"
    )
