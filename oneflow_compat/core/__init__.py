"""oneflow.core: the protobuf messages that clients import by their deep paths."""

from .. import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, None)
