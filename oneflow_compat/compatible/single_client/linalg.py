"""flow.linalg."""

from ._array import matmul

__all__ = ["matmul"]
