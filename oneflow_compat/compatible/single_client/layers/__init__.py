"""flow.layers: layers that make their variables, named "<layer>-weight" and so on."""

from ._conv import conv1d, conv2d, conv3d, upsample_2d
from ._dense import categorical_ordinal_encoder, dense, prelu
from ._norm import (
    batch_normalization,
    batch_normalization_add_relu,
    batch_normalization_relu,
    layer_norm,
    layer_norm_grad,
    layer_norm_param_grad,
)

__all__ = [
    "batch_normalization",
    "batch_normalization_add_relu",
    "batch_normalization_relu",
    "categorical_ordinal_encoder",
    "conv1d",
    "conv2d",
    "conv3d",
    "dense",
    "layer_norm",
    "layer_norm_grad",
    "layer_norm_param_grad",
    "prelu",
    "upsample_2d",
]
