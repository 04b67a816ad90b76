"""The path OneFlow keeps MinMaxObserver at."""

from .quantization import MinMaxObserver

__all__ = ["MinMaxObserver"]
