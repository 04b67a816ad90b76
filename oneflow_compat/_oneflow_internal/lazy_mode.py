"""oneflow._oneflow_internal.lazy_mode: whether a graph is being traced."""

from .._lazy_mode import guard, is_enabled  # noqa: F401
