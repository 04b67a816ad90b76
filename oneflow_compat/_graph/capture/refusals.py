"""Errors of eager kernels for dtypes that torch's fake kernels would take.

The same error is raised during capture, so that the fallback in this package (`a @ b` of different dtypes,
`&` of floating tensors) is what gets recorded.
"""

from __future__ import annotations

from typing import Any

import torch

from ..program.operators import Refusal


def refuse(func: Any, refusal: Refusal, args: tuple[Any, ...]) -> None:
    """Raise eager's error if the kernel takes no tensors of these dtypes."""
    dtypes = [a.dtype if isinstance(a, torch.Tensor) else type(a) for a in args]
    if refusal.applies(dtypes):
        raise refusal.error(f"{func} takes {refusal.needs}, but got {', '.join(map(str, dtypes))}")
