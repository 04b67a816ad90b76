"""oneflow.core.common: numbers that old programs take from OneFlow's protocol files."""

from ... import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, None)
