"""Deep path of nn.functional.grid_sample."""
from ..functional import grid_sample

__all__ = ["grid_sample"]
