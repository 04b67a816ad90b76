"""The Python files of a code base. A file that cannot be read is reported and skipped."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Iterable, Iterator

MAX_BYTES = 8 << 20  # larger files contain data; their syntax trees would take gigabytes
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True)
class Skipped:
    """A file or folder that was not scanned."""

    file: str
    reason: str


def python_files(paths: Iterable[str | os.PathLike[str]], skipped: list[Skipped]) -> Iterator[str]:
    """Yield every file among `paths` and every .py file below them, each once.

    Links to folders, hidden folders, virtual environments and installed packages below a path are left out.
    """
    seen: set[str] = set()
    for path in (os.fspath(path) for path in paths):
        for file in _below(path, skipped) if os.path.isdir(path) else [path]:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file


def _below(folder: str, skipped: list[Skipped]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        skipped.append(Skipped(str(error.filename), describe(error)))

    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not _is_left_out(parent, name))
        yield from (os.path.join(parent, name) for name in sorted(files) if name.endswith(".py"))


def _is_left_out(parent: str, name: str) -> bool:
    return (
        name.startswith(".")
        or name in SKIPPED_FOLDERS
        or os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
    )


def read(file: str) -> bytes:
    """Return the content of a regular file; raise OSError or ValueError for anything else."""
    status = os.stat(file)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("this is not a regular file")
    if status.st_size > MAX_BYTES:
        raise ValueError(f"the file has {status.st_size:,} bytes, more than {MAX_BYTES:,}")
    with open(file, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


def describe(error: BaseException) -> str:
    """Return why a file cannot be read, in one line."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
    if isinstance(error, RecursionError):
        return "its expressions are nested too deeply"
    if isinstance(error, MemoryError):
        return "its syntax tree needs too much memory"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__
