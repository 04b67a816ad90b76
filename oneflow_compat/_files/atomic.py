"""Files that appear complete or not at all. Each is written next to its target, flushed, then renamed."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a rename inside `folder` survive a power cut. Do nothing if the system cannot open folders."""
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


def lock_folder(folder: str | os.PathLike[str]) -> Callable[[], None]:
    """Wait until no other process has locked the folder, and lock it if the system can. Return the function
    that unlocks it.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return lambda: None
    handles = [handle]
    return lambda: os.close(handles.pop()) if handles else None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file that becomes `path` when the block ends without an error.

    Until then, and after an error or a crash, `path` is unchanged. An existing file keeps its mode. A
    symbolic link stays a link: the file it points to is replaced.
    """
    path = os.path.realpath(path)
    folder, prefix = os.path.dirname(path), f".{os.path.basename(path)}."
    _remove_leftovers(folder, prefix)
    handle, temporary = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            _try_lock(file.fileno())
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


_SUFFIX = ".tmp"


def _try_lock(handle: int) -> bool:
    """Lock an open file.

    Return False if another process has locked it, or if the system cannot lock files.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_leftovers(folder: str | os.PathLike[str], prefix: str) -> None:
    """Remove temporary files of killed saves: those that are at least an hour old and not locked by any
    process.
    """
    names = [
        n
        for n in os.listdir(folder)
        if n.startswith(prefix) and n.endswith(_SUFFIX) and len(n) == len(prefix) + 8 + len(_SUFFIX)
    ]
    for name in names:
        with contextlib.suppress(OSError):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                if _try_lock(file.fileno()) and os.stat(path).st_mtime < time.time() - _FRESH:
                    os.unlink(path)


_FRESH = 3600  # seconds; network file systems may not show the locks of other machines


def umask() -> int:
    """Return the umask of the process."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _mode(path: str | os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_mode & 0o7777
    except OSError:
        return 0o666 & ~umask()


def write_synced(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a new file and flush it to disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
