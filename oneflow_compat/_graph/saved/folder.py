"""The folder of a saved graph, written so that it holds the old graph or the new one at any moment.

The tensors are written to a file with a unique name. program.json refers to that file and is renamed into
place at the end, which is the commit. The next save removes the leftovers of an interrupted save: it holds
the folder's lock, so nobody else is writing them.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import IO

from ..._file_safety.atomic import check_target, new_file, sync_folder, write_synced
from ..._file_safety.shown import shown
from .reader import PackageError

PROGRAM, TENSORS = "program.json", "tensors.pt"
TENSORS_NAME = re.compile(r"tensors(-[0-9a-f]{8})?\.pt\Z")
_TEMPORARY = re.compile(r"\.(program\.json|tensors\.pt)-[0-9a-f]{8}\.tmp\Z")


def write_folder(
    folder: str | os.PathLike[str],
    write_tensors: Callable[[IO[bytes]], object],
    program_text: Callable[[str], str],
) -> None:
    """Write a graph.

    `write_tensors(file)` fills an open file. `program_text(name)` returns program.json for tensors in a file
    of that name.
    """
    folder = os.path.realpath(check_target("save", folder))
    created = _make(folder)
    unlock = _lock(folder)
    tensors, program = (
        os.path.join(folder, f".{name}-{secrets.token_hex(4)}.tmp") for name in (TENSORS, PROGRAM)
    )
    has_tensors = os.path.lexists(os.path.join(folder, TENSORS))
    name = f"tensors-{secrets.token_hex(4)}.pt" if has_tensors else TENSORS
    written = [tensors, program, os.path.join(folder, name)]
    try:
        _check_content(folder)
        with new_file(tensors) as file:
            write_tensors(file)
        write_synced(program, program_text(name).encode())
        os.rename(tensors, os.path.join(folder, name))
        os.replace(program, os.path.join(folder, PROGRAM))
        written.clear()
        sync_folder(folder)
        _remove_leftovers(folder, name, unlock is not None)
    finally:
        for path in written:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if unlock is not None:
            unlock()
        if created and written:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _make(folder: str) -> bool:
    """Create the folder with the mode of the umask. Return True if it was missing."""
    try:
        os.makedirs(folder)
        return True
    except FileExistsError:
        if not os.path.isdir(folder):
            raise PackageError(f"{folder} is a file; a graph is saved into a folder") from None
        return False
    except NotADirectoryError:
        raise PackageError(f"{folder} lies in a file; a graph is saved into a folder") from None


def _check_content(folder: str) -> None:
    """Raise if the folder belongs to something else: it has files but no graph, or a device for one."""
    names = os.listdir(folder)
    if PROGRAM in names and not os.path.isfile(os.path.join(folder, PROGRAM)):
        raise PackageError(
            f"{os.path.join(folder, PROGRAM)} is no regular file, so it is not replaced; choose another"
            " folder"
        )
    if PROGRAM not in names and not all(TENSORS_NAME.match(n) or _TEMPORARY.match(n) for n in names):
        raise PackageError(f"{folder} exists and holds something else than a graph; choose another folder")


def _remove_leftovers(folder: str, name: str, locked: bool) -> None:
    """Remove the tensors of older graphs and, if nobody else can be writing here, the leftovers of
    interrupted saves.
    """
    for file in os.listdir(folder):
        if TENSORS_NAME.match(file) and file != name or locked and _TEMPORARY.match(file):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, file))


def _lock(folder: str) -> Callable[[], None] | None:
    """Wait until no other process saves into the folder. Return the function that releases the lock, or None
    if folders cannot be locked.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        os.close(handle)
        return None
    return lambda: os.close(handle)


@contextlib.contextmanager
def opened(folder: str, name: str) -> Iterator[IO[bytes]]:
    """Open a file of a saved graph for reading; it must be a regular file inside the folder."""
    path = os.path.join(folder, name)
    real = os.path.realpath(path)
    if os.path.islink(path) and not any(real.startswith(base + os.sep) for base in _own_folders(folder)):
        raise PackageError(
            f"{path} is a link to {shown(real)}, outside of the graph's folder; copy the file into the folder"
        )
    try:
        # Opening a named pipe without O_NONBLOCK would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise PackageError(f"no graph in {folder}: {path} is missing") from None
    except NotADirectoryError:
        raise PackageError(f"{folder} is no folder of a graph") from None
    except OSError as error:
        raise PackageError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PackageError(f"{path} is no ordinary file; save the graph again")
        yield file


def _own_folders(folder: str) -> tuple[str, ...]:
    """Return the folder, and the folder of the files that the Hugging Face cache links to
    (<model>/snapshots/<version>/ beside <model>/blobs/).
    """
    folder = os.path.realpath(folder)
    parent = os.path.dirname(folder)
    while os.path.basename(parent) != "snapshots" and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    if os.path.basename(parent) != "snapshots":
        return (folder,)
    return folder, os.path.join(os.path.dirname(parent), "blobs")
