"""Files that appear whole or not at all: written beside the target, flushed to disk, then renamed onto it."""
from __future__ import annotations

import contextlib
import os
import tempfile


def sync_folder(folder) -> None:
    """Make a rename inside `folder` survive a power cut (a no-op where folders cannot be opened)."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def lock_folder(folder):
    """Wait until no other process holds the folder; returns the function that lets go (nothing where folders cannot be locked)."""
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return lambda: None
    held = [handle]
    return lambda: os.close(held.pop()) if held else None


@contextlib.contextmanager
def replacing(path):
    """Open a binary file that becomes `path` when the block ends without an error.

    Until then, and after an error or a crash, `path` is what it was. The mode of an existing
    file is kept. A symbolic link stays a link: the file it points to is replaced.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def umask() -> int:
    """The mask of the modes of new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _mode(path) -> int:
    try:
        return os.stat(path).st_mode & 0o7777
    except OSError:
        return 0o666 & ~umask()


def write_synced(path, data: bytes) -> None:
    """Write a new file and flush it to disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
