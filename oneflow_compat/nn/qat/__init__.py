"""oneflow.nn.qat: convolutions for quantization-aware training."""

from ..._bind import fall_through as _ft
from .conv import QatConv1d, QatConv2d, QatConv3d

__all__ = ["QatConv1d", "QatConv2d", "QatConv3d"]


__getattr__, __dir__ = _ft(__name__, "torch.nn.qat")
