"""oneflow.nn.modules.batchnorm_fused: the path under which OneFlow's pickles name FusedBatchNorm1d,
FusedBatchNorm2d, FusedBatchNorm3d.
"""

from .fused import FusedBatchNorm1d, FusedBatchNorm2d, FusedBatchNorm3d

__all__ = ["FusedBatchNorm1d", "FusedBatchNorm2d", "FusedBatchNorm3d"]
