"""oneflow.cuda.FloatTensor and its kin: constructors of CUDA tensors of one dtype."""

from __future__ import annotations

from typing import Any

import torch

from .._ops.tensor_types import _tensor_type

_cuda: Any = torch.cuda  # torch's stub does not declare the types
BFloat16Tensor = _cuda.BFloat16Tensor
BoolTensor = _cuda.BoolTensor
ByteTensor = _cuda.ByteTensor
CharTensor = _cuda.CharTensor
DoubleTensor = _cuda.DoubleTensor
FloatTensor = _cuda.FloatTensor
HalfTensor = _cuda.HalfTensor
IntTensor = _cuda.IntTensor
LongTensor = _cuda.LongTensor
ComplexFloatTensor = _tensor_type("ComplexFloatTensor", torch.complex64, "cuda")
ComplexDoubleTensor = _tensor_type("ComplexDoubleTensor", torch.complex128, "cuda")
