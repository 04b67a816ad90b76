"""oneflow.cuda.FloatTensor and its kin: constructors of CUDA tensors of one dtype."""

from __future__ import annotations

import torch

from .._ops.misc import _tensor_type

BFloat16Tensor = torch.cuda.BFloat16Tensor
BoolTensor = torch.cuda.BoolTensor
ByteTensor = torch.cuda.ByteTensor
CharTensor = torch.cuda.CharTensor
DoubleTensor = torch.cuda.DoubleTensor
FloatTensor = torch.cuda.FloatTensor
HalfTensor = torch.cuda.HalfTensor
IntTensor = torch.cuda.IntTensor
LongTensor = torch.cuda.LongTensor
ComplexFloatTensor = _tensor_type("ComplexFloatTensor", torch.complex64, "cuda")
ComplexDoubleTensor = _tensor_type("ComplexDoubleTensor", torch.complex128, "cuda")
