"""Tensors and dtypes as OneFlow prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def dtype_text(dtype: torch.dtype | type | None) -> str:
    return str(dtype).replace("torch.", "oneflow.")


def tensor_text(
    shape: Sequence[int | str],
    dtype: torch.dtype | type | None,
    *,
    lazy: bool = False,
    requires_grad: bool = False,
    grad_fn: str | None = None,
) -> str:
    """tensor(..., size=(2, 4), dtype=oneflow.float32)"""
    size = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    parts = ["..."] + (["is_lazy='True'"] if lazy else []) + [f"size={size}", f"dtype={dtype_text(dtype)}"]
    if grad_fn:
        parts.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        parts.append("requires_grad=True")
    return f"tensor({', '.join(parts)})"
