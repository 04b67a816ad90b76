"""oneflow.nn.modules.fused_mlp: the path under which OneFlow's pickles name FusedMLP."""

from .fused import FusedMLP

__all__ = ["FusedMLP"]
