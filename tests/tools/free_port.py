"""A port for programs of several processes on this machine."""

import socket


def free_port() -> int:
    """Return a port of the local address that no program uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
