"""Deep path of oneflow.as_tensor."""
from ... import as_tensor

__all__ = ["as_tensor"]
