"""Embedding with OneFlow's positional `device` and `dtype`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ... import _bind
from ._same import SameAsTorch

__all__ = ["Embedding"]


class Embedding(nn.Embedding, metaclass=SameAsTorch):
    """torch's Embedding; slots 9 and 10 are `device` and `dtype` (a bool in slot 9 is torch's `_freeze`).

    TypeError for more than 10 arguments by position.
    """

    _torch_class = nn.Embedding
    _blank = (0, 0)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: torch.Tensor | None = None,
        device: torch.device | str | int | bool | None = None,
        dtype: Any = None,
        *torch_rest: Any,
        _freeze: bool = False,
    ) -> None:
        if isinstance(device, bool):
            _freeze, device, dtype = device, dtype, torch_rest[0] if torch_rest else None
        elif torch_rest:
            raise TypeError(
                f"Embedding() takes at most 10 positional arguments, found {10 + len(torch_rest)}"
            )
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            _freeze,
            device,
            dtype,
        )


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.sparse", classes=True)
