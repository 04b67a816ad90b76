"""oneflow.core.operator: op_conf_pb2."""
