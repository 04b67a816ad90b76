"""A session: an id and whether it is open. Programs start and end by themselves on torch."""


class MultiClientSession:
    def __init__(self, env, sess_id):
        self.env, self.id, self.status = env, sess_id, "CREATED"

    def TryInit(self):
        """Open the session."""
        if self.status == "CREATED":
            self.status = "INITED"
        return self

    def TryClose(self):
        """Close the session; a second call does nothing."""
        self.status = "CLOSED"

    @property
    def resource(self):
        """The values of the runtime knobs, by OneFlow's fields (`config_util`)."""
        from .config_util import resource

        return resource()

    AnyGlobalFunctionDefined = staticmethod(lambda: False)
