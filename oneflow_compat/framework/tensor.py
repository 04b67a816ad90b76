"""Deep path of oneflow.Tensor and the list of tensors OneFlow's functions return."""
from torch import Tensor

TensorTuple = list
