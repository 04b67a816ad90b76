"""Deep path of oneflow.roll."""
from ... import roll as roll_op

__all__ = ["roll_op"]
