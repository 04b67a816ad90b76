"""The lines that ONEFLOW_LOGS=recompiles writes to stderr: why a graph captures another program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import TreeSpec

from .._env import get
from .explanations import Explanation, list_text

if TYPE_CHECKING:
    from .signature import Signature


class RecaptureLog:
    """The log of one graph; its first capture has no line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._latest: Signature | None = None  # signature of the latest capture

    def note(self, key: Signature, explanation: Explanation | None) -> None:
        """Write why a program is captured for arguments with this signature, if the user asked for it."""
        latest, self._latest = self._latest, key
        if latest is None or "recompiles" not in get("ONEFLOW_LOGS").split(",") or sys.stderr is None:
            return
        reason = str(explanation) if explanation is not None else _difference(latest, key)
        print(f"oneflow: graph {self.name} captures again: {reason}", file=sys.stderr, flush=True)


def _difference(earlier: Signature, now: Signature) -> str:
    """Return the first difference of two signatures."""
    if len(earlier) == len(now):
        for index, (before, after) in enumerate(zip(earlier, now)):
            if before == after:
                continue
            if isinstance(before, TreeSpec) or isinstance(after, TreeSpec):
                break
            return f"entry {index} of the arguments was {_leaf_text(before)}, and is {_leaf_text(after)}"
        else:
            return "an assumption of the earlier programs does not hold"
    return "the arguments have another structure, or autocast was switched on or off"


def _leaf_text(leaf: Any) -> str:
    """Return `float32[4, 3] cpu, strides (3, 1)` of a tensor, `int 3` of a number."""
    if isinstance(leaf, tuple) and len(leaf) > 4 and isinstance(leaf[0], torch.Size):
        shape, strides, dtype, device, requires_grad = leaf[:5]
        gradient = ", requires a gradient" if requires_grad else ""
        name = str(dtype).removeprefix("torch.")
        return f"{name}{list_text(shape)} {device}, strides {strides}{gradient}"
    if isinstance(leaf, tuple) and len(leaf) == 2 and isinstance(leaf[0], type):
        return f"{leaf[0].__name__} {leaf[1]!r}"
    return repr(leaf)
