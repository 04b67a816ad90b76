"""Operators that follow a default dtype which build() itself has set.

A program runs under the default dtype of its caller, so it has to name the dtype of such a result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..errors import CaptureError


def name_dtype(node: Node, tensors: tuple[Any, ...], result: Any) -> None:
    """Give a recorded call the dtype of its result, or raise if the operator takes no dtype.

    `tensors` are the symbolic arguments of the call.
    """
    if not isinstance(result, torch.Tensor) or not (result.is_floating_point() or result.is_complex()):
        return
    if any(isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) for t in tensors):
        return  # they decide the dtype
    positions = [i for i, a in enumerate(node.target._schema.arguments) if a.name == "dtype"]
    if not positions:
        raise CaptureError(
            f"{node.target} makes {result.dtype} of integers, because build() has set the default dtype",
            "Convert the integers first, as in x.to(torch.float64), or set the default dtype outside"
            " build().",
        )
    if positions[0] >= len(node.args) and node.kwargs.get("dtype") is None:
        node.kwargs = {**node.kwargs, "dtype": result.dtype}
