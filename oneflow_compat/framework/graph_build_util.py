"""Deep path of the tracing flag."""
from .._oneflow_internal import lazy_mode


def scope_to_proto(scope) -> str:
    """Text of a scope."""
    return scope._proto_str
