"""flow.nn of the job-function API: functions on blobs; Module and Parameter are torch's."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


_HOMES = {
    "_windows": (
        """avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d conv1d conv2d conv3d
        compat_conv2d
        conv2d_transpose torch_conv2d_transpose"""
    ),
    "_losses": (
        """BCELoss BCEWithLogitsLoss KLDivLoss L1Loss MSELoss MarginRankingLoss TripletMarginLoss
        sigmoid_cross_entropy_with_logits softmax_cross_entropy_with_logits sparse_cross_entropy
        sparse_softmax_cross_entropy_with_logits distributed_sparse_softmax_cross_entropy_with_logits
        ctc_greedy_decoder"""
    ),
    "_activations": (
        """elu hardsigmoid hardswish hardtanh leaky_relu logsoftmax mish relu relu6 softmax softmax_grad swish
        bias_add fused_bias_add_gelu fused_scale_tril tril PixelShuffle PixelShufflev2
        fused_self_attention_query_mul_key_and_value
        dropout random_mask_like fused_bias_add_dropout fused_scale_tril_softmax_dropout"""
    ),
    "_normalization": (
        "GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d batch_normalization layer_norm moments"
    ),
    "module": "Module",
    "parameter": "Parameter",
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("init", "module", "parameter"):
        return importlib.import_module(f"{__name__}.{name}")
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_WHERE, "init", "module", "parameter"})
