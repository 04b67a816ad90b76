"""Deep path of oneflow.linspace."""
from ... import linspace as linspace_op

__all__ = ["linspace_op"]
