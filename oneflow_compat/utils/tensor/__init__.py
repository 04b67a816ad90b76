"""oneflow.utils.tensor: between torch tensors and OneFlow tensors, which are the same objects here."""

from .from_or_to_torch_tensor import from_torch, to_torch
