"""The session objects OneFlow's tests ask for; torch needs no session, so they only carry a state."""

from typing import Any

from .multi_client_session import MultiClientSession

_default = MultiClientSession(None, 0)


def GetDefaultSession() -> MultiClientSession:
    return _default


def NewDefaultSession(env: Any) -> MultiClientSession:
    global _default
    _default = MultiClientSession(env, _default.id + 1)
    return _default


def TryCloseDefaultSession() -> None:
    _default.TryClose()
