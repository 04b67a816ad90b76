"""Old path of oneflow.utils.tensor."""

from .tensor import from_torch, to_torch

__all__ = ["from_torch", "to_torch"]
