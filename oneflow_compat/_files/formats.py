"""The formats of checkpoint files, told by their first bytes."""

from __future__ import annotations

import os
import struct
import tarfile
from typing import IO

from . import torch_file


def format_of(file: IO[bytes], size: int) -> str:
    """Return "zip", "torch-legacy", "tar", "safetensors", "pickle" or "unknown"; the position is kept."""
    start = file.tell()
    head = file.read(512)
    file.seek(start)
    if head[:4] == b"PK\x03\x04" or head[:4] == b"PK\x05\x06":
        return "zip"
    if _is_tar(head):
        return "tar"
    if torch_file.is_stream(head):
        return "torch-legacy"
    if len(head) >= 9 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= max(size - 8, 0):
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    return "unknown"


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def size_of(file: IO[bytes]) -> int:
    """Return the count of bytes from the current position to the end."""
    here = file.tell()
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(here)
    return end - here
