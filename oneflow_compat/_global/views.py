"""Views of global tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

VIEWS = (torch.Tensor.view, torch.Tensor.view_as)


def view_or_copy(view: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap `view` so that it copies a tensor whose memory allows no view.

    OneFlow's global tensors and the tensors of a graph are always contiguous.
    """

    def call(tensor: torch.Tensor, *shape: Any, **kwargs: Any) -> torch.Tensor:
        try:
            return view(tensor, *shape, **kwargs)
        except (RuntimeError, ValueError):
            asked = kwargs.get("size", kwargs.get("other", shape[0] if len(shape) == 1 else shape))
            if tensor.is_contiguous() or isinstance(asked, torch.dtype):
                raise
            return tensor.reshape(asked.shape if isinstance(asked, torch.Tensor) else asked)

    return call
