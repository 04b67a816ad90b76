"""oneflow.framework.session_context: the sessions of `_graph/sessions.py`."""

from .._graph.sessions import GetDefaultSession, NewDefaultSession, TryCloseDefaultSession  # noqa: F401
