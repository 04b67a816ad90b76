"""Deep path of oneflow.norm."""
from ... import norm

__all__ = ["norm"]
