"""oneflow.framework.attr_util."""

from .._graph.nested_attributes import SetProtoMessageAttribute, get_nested_attribute  # noqa: F401
