"""Opening of files from strangers: regular files only, and zip files whose directory fits into memory."""

from __future__ import annotations

import os
import stat
import zipfile
from typing import IO, Any

from .budget import ALLOWANCE, DATA_FACTOR
from .errors import CheckpointError, RefusedError

_MEMBER = 700  # bytes of Python objects for a member of a zip file
_ENTRY = b"PK\1\2"  # begins the entry of a member in the directory


def open_regular(path: str) -> IO[bytes]:
    """Open a file. A pipe or a device is refused, and opening it does not wait for a writer."""
    file = open(path, "rb", opener=_without_waiting)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CheckpointError.of(path, "no regular file; copy its content into one")
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def open_zip(file: IO[bytes], size: int) -> zipfile.ZipFile:
    """Open a zip file of `size` bytes. Refuse a directory of more members than such a file may have."""
    directory = _Directory(file, ALLOWANCE + DATA_FACTOR * size)
    archive = zipfile.ZipFile(directory)  # type: ignore[call-overload]
    directory.is_open = True
    return archive


class _Directory:
    """A file that counts the members of the directory which zipfile reads."""

    def __init__(self, file: IO[bytes], budget: int) -> None:
        self._file, self._left, self.is_open = file, budget, False
        self.seek, self.tell, self.seekable = file.seek, file.tell, lambda: True

    def read(self, count: int = -1) -> Any:
        data = self._file.read(count)
        if not self.is_open:
            self._left -= _MEMBER * data.count(_ENTRY)
            if self._left < 0:
                raise RefusedError("altered or hostile: it has more members than a file of its size may have")
        return data
