"""oneflow.nn.utils.parameters_grouping."""

from ...optim.parameters_grouping import (  # noqa: F401
    ALIGN_BYTES,
    ContiguousParamsGroup,
    numel_in_bucket,
    packed_data,
)
