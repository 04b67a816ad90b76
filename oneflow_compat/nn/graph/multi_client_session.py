"""A session: an id and whether it is open. Programs start and end by themselves on torch."""

from __future__ import annotations

import enum
import types

from .runtime_knobs import resource, set_resource


class MultiClientSession:
    class Status(enum.Enum):
        """States of a session, in their order."""

        CREATED = 1
        INITED = 2
        CLOSED = 3

    def __init__(self, env: object, sess_id: int) -> None:
        self.env, self.id, self.status = env, sess_id, self.Status.CREATED

    def TryInit(self) -> MultiClientSession:
        """Open the session."""
        if self.status is self.Status.CREATED:
            self.status = self.Status.INITED
        return self

    def TryClose(self) -> None:
        """Close the session; a second call does nothing."""
        self.status = self.Status.CLOSED

    Reset = TryClose

    @property
    def is_running(self) -> bool:
        """Whether the session is open."""
        return self.status is self.Status.INITED

    @property
    def resource(self) -> types.SimpleNamespace:
        """The values of the runtime knobs, by OneFlow's fields (`config_util`)."""
        return resource()

    def update_resource_eagerly(self, resource_config: object) -> None:
        """Set the runtime knobs whose fields `resource_config` has.

        Raises RuntimeError unless the session is open.
        """
        if not self.is_running:
            raise RuntimeError(
                f"update_resource_eagerly() needs an open session, this one is {self.status.name}; call"
                " TryInit() first"
            )

        set_resource(resource_config)

    AnyGlobalFunctionDefined = staticmethod(lambda: False)


# -------- The session objects OneFlow's tests ask for; torch needs no session, so they only carry a state

_default = MultiClientSession(None, 0)


def GetDefaultSession() -> MultiClientSession:
    return _default


def NewDefaultSession(env: object) -> MultiClientSession:
    global _default
    _default = MultiClientSession(env, _default.id + 1)
    return _default


def TryCloseDefaultSession() -> None:
    _default.TryClose()
