"""Operators that write running statistics, which their schemas do not say."""

# ATen operator -> positions of its running mean, its running variance, and its flag `training`
STATISTICS_WRITES = {
    "native_batch_norm.default": (3, 4, 5),
    "cudnn_batch_norm.default": (3, 4, 5),
    "miopen_batch_norm.default": (3, 4, 5),
}
