"""Blocks of memory that processes share by name: the standard library's, whose names OneFlow's start with
"ofshm_".
"""

from __future__ import annotations

import secrets
from multiprocessing import shared_memory as _std

__all__ = ["SharedMemory"]


class SharedMemory(_std.SharedMemory):
    """A block called `name`, new (`create`, of `size` bytes, more than 0) or attached.

    The last user calls unlink().
    """

    def __init__(self, name: str | None = None, create: bool = False, size: int = 0) -> None:
        super().__init__(f"ofshm_{secrets.token_hex(4)}" if create and name is None else name, create, size)
