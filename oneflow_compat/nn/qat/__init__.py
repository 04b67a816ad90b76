"""oneflow.nn.qat: convolutions for quantization-aware training."""
from .conv import QatConv1d, QatConv2d, QatConv3d

__all__ = ["QatConv1d", "QatConv2d", "QatConv3d"]
