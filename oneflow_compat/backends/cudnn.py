"""oneflow.backends.cudnn: torch's switches (read and set through), and three knobs that are remembered
without effect.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from .. import _knobs

globals().update(_knobs.setters("backends.cudnn"))


class _Switches(types.ModuleType):
    """`benchmark`, `deterministic`, ... live in torch.backends.cudnn: reading and setting them reaches it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.backends.cudnn, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(torch.backends.cudnn, name) and not name.startswith("__"):
            setattr(torch.backends.cudnn, name, value)
        else:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(
            {
                *vars(self),
                *dir(torch.backends.cudnn),
                *(n for n in dir(type(torch.backends.cudnn)) if not n.startswith("_")),
            }
        )


sys.modules[__name__].__class__ = _Switches
