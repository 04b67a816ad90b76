"""oneflow.core: the protobuf messages that clients import by their deep paths."""
