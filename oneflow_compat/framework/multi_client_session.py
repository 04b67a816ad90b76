"""oneflow.framework.multi_client_session."""

from .._graph.multi_client_session import MultiClientSession  # noqa: F401
