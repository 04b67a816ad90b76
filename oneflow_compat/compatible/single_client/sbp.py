"""flow.sbp: today's rules of global tensors."""

from ...sbp import broadcast, partial_sum, split

__all__ = ["broadcast", "partial_sum", "split"]
