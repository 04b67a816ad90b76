"""oneflow.nn.utils: gradient clipping and packed parameters; the rest is torch.nn.utils."""

from ..._bind import fall_through as _ft
from . import container, spectral_norm, weight_norm
from ...optim import parameters_grouping  # the modules first, then the functions of that name
from ..._ops.clip_grad import clip_grad_norm_, clip_grad_value_
from ...optim.parameters_grouping import ContiguousParamsGroup
from torch.nn.utils import spectral_norm, weight_norm

__all__ = [
    "ContiguousParamsGroup",
    "clip_grad_norm_",
    "clip_grad_value_",
    "container",
    "parameters_grouping",
    "spectral_norm",
    "weight_norm",
]

__getattr__, __dir__ = _ft(__name__, "torch.nn.utils")
