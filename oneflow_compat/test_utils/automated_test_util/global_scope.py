"""Deep path of the scope that `globaltest` opens."""

from oneflow_autotest.placement import GlobalScope, is_global

__all__ = ["GlobalScope", "is_global"]
