"""oneflow.core.operator: op_conf_pb2."""

from ... import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, None)
