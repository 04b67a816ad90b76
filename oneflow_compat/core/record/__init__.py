"""oneflow.core.record: OFRecord messages (record_pb2)."""
