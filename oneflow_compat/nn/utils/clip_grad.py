"""oneflow.nn.utils.clip_grad: torch's, with OneFlow's positional order."""
from __future__ import annotations

import torch.nn.utils as _torch
from torch.nn.utils import clip_grad_value_

from ..._bind import fall_through as _ft

__all__ = ["clip_grad_norm_", "clip_grad_value_"]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, fused=False, error_if_nonfinite=False, foreach=None):
    """Scale the gradients in place so that their joint norm is at most max_norm; the norm before, 0-d.

    `fused` is the fourth argument, as in OneFlow (torch has error_if_nonfinite there): it asks for torch's
    multi-tensor kernels, which torch takes by itself where they exist. No gradient at all gives 0.
    """
    return _torch.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite=error_if_nonfinite, foreach=foreach)


__getattr__, __dir__ = _ft(__name__, "torch.nn.utils.clip_grad")
