"""Files that appear complete or not at all. Each is written next to its target, flushed, then renamed."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from .errors import CheckpointError
from .opening import open_regular


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


def check_target(function: str, path: str | os.PathLike[str]) -> str:
    """Return the path to save to. TypeError or ValueError unless it is text that may name a file."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"{function}: a path is a str or an os.PathLike of one, found {type(path).__name__}")
    path = os.fspath(path)
    if not path or "\0" in path:
        raise ValueError(f"{function}: a path names a file or folder, found {path!r}")
    return path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file that becomes `path` when the block ends without an error.

    Until then, and after an error or a crash, `path` is unchanged. An existing file keeps its mode. A
    symbolic link stays a link: the file it points to is replaced. A pipe or device is not replaced: the
    content is written into it.
    """
    if _is_special(path):
        with open(path, "wb") as file, _named_failures(path, file) as watched:
            yield watched
        return
    path = os.path.realpath(path)
    folder, prefix = os.path.dirname(path), _prefix_of(os.path.basename(path))
    _remove_leftovers(folder, prefix)
    handle, temporary = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            _try_lock(file.fileno())
            with _named_failures(path, file) as watched:
                yield watched
                os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a new binary file, and flush it to disk when the block ends."""
    with open(path, "wb") as file, _named_failures(path, file) as watched:
        yield watched
        watched.flush()
        os.fsync(file.fileno())


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Whether the path exists and is neither a regular file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


class _Watched:
    """A binary file that remembers the first error of a write. torch.save raises another error in its place
    ("unexpected pos 704 vs 598").
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        return self._watch(self._file.write, data)

    def flush(self) -> None:
        self._watch(self._file.flush)

    def _watch(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except OSError as error:
            self.failure = self.failure or error
            raise


@contextlib.contextmanager
def _named_failures(path: str | os.PathLike[str], file: IO[bytes]) -> Iterator[Any]:
    """Yield the file for writing, and flush it. If a write fails (the disk is full), raise an OSError that
    says why and names `path`.
    """
    watched = _Watched(file)
    try:
        yield watched
        watched.flush()
    except BaseException as error:
        if watched.failure is None:
            raise
        with contextlib.suppress(OSError):  # the rest of the buffer fails in the same way
            file.close()
        failure = watched.failure
        raise OSError(failure.errno, failure.strerror, os.fspath(path)) from error


_SUFFIX = ".tmp"
_RANDOM = 8  # characters that mkstemp adds
_LONGEST = 255 - _RANDOM - len(_SUFFIX)  # bytes; file systems allow 255 for a name


def _prefix_of(name: str) -> str:
    """Return how the names of the temporary files of a file begin. A long name is replaced by its CRC-32."""
    prefix = f".{name}."
    return prefix if len(os.fsencode(prefix)) <= _LONGEST else f".{zlib.crc32(os.fsencode(name)):08x}."


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
        if n.startswith(prefix) and n.endswith(_SUFFIX) and len(n) == len(prefix) + _RANDOM + len(_SUFFIX)
    ]
    for name in names:
        with contextlib.suppress(OSError, CheckpointError):
            path = os.path.join(folder, name)
            with open_regular(path) as file:
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
    with new_file(path) as file:
        file.write(data)
