"""Deep path of oneflow.meshgrid."""
from ... import meshgrid as meshgrid_op

__all__ = ["meshgrid_op"]
