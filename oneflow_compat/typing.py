"""oneflow.typing: annotations of job functions (see compatible/single_client/typing.py)."""

from .compatible.single_client.typing import Bundle, Callback, ListListNumpy, ListNumpy, Numpy

__all__ = ["Bundle", "Callback", "ListListNumpy", "ListNumpy", "Numpy"]
