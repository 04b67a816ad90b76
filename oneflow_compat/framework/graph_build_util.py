"""Deep path of the tracing flag, and of scopes as messages."""

from .. import _lazy_mode as lazy_mode


def scope_to_proto(scope):
    """The scope's name, numbers and attributes as a message (`scope_util.ScopeProto`)."""
    return scope.proto()
