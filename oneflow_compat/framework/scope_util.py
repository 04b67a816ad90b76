"""The scope of OneFlow's graph builder: here only the name prefix and device of the code being built."""
from __future__ import annotations


class Scope:
    def __init__(self, name="", device="cpu"):
        self.name, self.device = name, device

    _proto_str = property(lambda self: f'scope {{ name: "{self.name}" device: "{self.device}" }}')


_current = Scope()


def current_scope() -> Scope:
    return _current
