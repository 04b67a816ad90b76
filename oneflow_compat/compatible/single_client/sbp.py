"""flow.sbp: today's placements (SBP) of global tensors."""

from ...sbp import broadcast, partial_sum, split

__all__ = ["broadcast", "partial_sum", "split"]
