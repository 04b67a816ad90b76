"""oneflow.core.record: OFRecord messages (record_pb2)."""

from ... import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, None)
