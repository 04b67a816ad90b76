"""oneflow.nn.utils.parameters_grouping."""
from ...optim.parameters_grouping import ALIGN_BYTES, ContiguousParamsGroup, numel_in_bucket, packed_data  # noqa: F401
