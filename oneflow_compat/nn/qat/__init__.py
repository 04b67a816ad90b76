"""oneflow.nn.qat: convolutions for quantization-aware training."""

from .conv import QatConv1d, QatConv2d, QatConv3d
from ..._bind import fall_through as _ft

__all__ = ["QatConv1d", "QatConv2d", "QatConv3d"]


__getattr__, __dir__ = _ft(__name__, "torch.nn.qat")
