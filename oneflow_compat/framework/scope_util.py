"""oneflow.framework.scope_util: the scopes of `_graph/scopes.py`."""

from .._graph.scopes import AttrValue, Scope, ScopeContext, ScopeProto, current_scope  # noqa: F401
