"""The folder of compiled regions: `<key>.json`, which names a library `<sha256>.so` beside it.

A library is machine code, so an entry is used only if this user wrote it: the folder and its files belong to
the user, and nobody else may write there. A library is loaded only if its content has the recorded SHA-256.
Files are renamed into place, so several processes may read and write at once. A damaged entry is removed and
compiled again.

`<key>.note` is a JSON document about the calls of a graph (_graph/argument_sizes.py). Notes pass the same
checks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .... import _env

FORMAT = 1
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_MOST_NOTES = 1000  # the oldest half is removed if there are more
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp\Z")
_ABANDONED = 3600  # seconds after which a temporary file belongs to nobody
_KEEP = 0.8  # share of the quota that an eviction leaves
_told: set[str] = set()  # messages that were given


class Unsafe(Exception):
    """The folder or a file could have been written by somebody else; the message says which."""


@dataclass(frozen=True)
class Entry:
    """A compiled region on disk: its record, and the path of its library."""

    key: str
    record: dict[str, Any]
    library: Path
    last_use: float = 0.0


def default_folder() -> Path:
    """Return ONEFLOW_CACHE_DIR, else oneflow/programs in the user's cache folder."""
    named = _env.get("ONEFLOW_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    return Path(_env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneflow" / "programs"


def quota() -> int:
    """Return the largest size of the cache in bytes; 0 switches it off."""
    return _env.get_int("ONEFLOW_CACHE_SIZE") << 20


def default_store() -> Store | None:
    """Return the user's cache, or None if it is switched off or may not be used. The reason is told once."""
    if sys.platform != "linux" or quota() <= 0:
        return None
    try:
        return Store(default_folder())
    except (Unsafe, OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        _warn_once(f"compiled programs are not kept on disk: {error}")
        return None


class Store:
    """The entries in one folder, which is created if it is missing.

    `private`: nobody else may write there, and the oldest entries are removed. The folder of a saved graph
    that the user trusts is not private.
    """

    def __init__(self, folder: str | os.PathLike[str], create: bool = True, private: bool = True) -> None:
        self.folder, self.private = Path(os.path.realpath(folder)), private
        if create:
            self.folder.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
        if private:
            check_private(self.folder)

    def find(self, key: str) -> Entry | None:
        """Return the entry of a key if it is whole. Remove what is damaged."""
        path = self.folder / f"{key}.json"
        try:
            record = json.loads(self._read(path))
            entry = Entry(key, record, self.folder / f"{_checked(record, key)['library']}.so")
            content = self._read(entry.library)
        except FileNotFoundError:
            _discard(path)  # the library was evicted
            return None
        except Unsafe as error:
            _warn_once(f"a compiled program is not used: {error}")
            return None
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            _discard(path)
            return None
        if hashlib.sha256(content).hexdigest() != record["library"]:
            self.remove(entry)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of the last use
        return entry

    def put(self, key: str, record: dict[str, Any], library: bytes) -> str:
        """Write an entry. An older entry of the key is replaced. Return the SHA-256 of the library."""
        digest = hashlib.sha256(library).hexdigest()
        record = {"format": FORMAT, "key": key, **record, "library": digest, "bytes": len(library)}
        self._write(f"{digest}.so", library)
        self._write(f"{key}.json", json.dumps(record).encode())
        if self.private:
            self._evict(quota())
        return digest

    def find_note(self, key: str) -> dict[str, Any] | None:
        """Return the document of a note, or None."""
        path = self.folder / f"{key}.note"
        try:
            note: dict[str, Any] = json.loads(self._read(path))
            return note
        except FileNotFoundError:
            return None
        except Unsafe as error:
            _warn_once(f"a note about compiled programs is not used: {error}")
        except (ValueError, OSError, RecursionError):
            _discard(path)
        return None

    def put_note(self, key: str, document: dict[str, Any]) -> None:
        """Write a note. A full disk only costs the note."""
        with contextlib.suppress(OSError):
            self._write(f"{key}.note", json.dumps(document).encode())
            notes = [(status.st_mtime, path) for path, status in self._files() if path.suffix == ".note"]
            if len(notes) > _MOST_NOTES:
                for _, path in sorted(notes)[: _MOST_NOTES // 2]:
                    _discard(path)

    def _read(self, path: Path) -> bytes:
        """Return the content of a regular file, which only this user may write if the folder is private."""
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unsafe(f"{path} is no regular file; remove it")
            if self.private:
                _check_own(path, status)
            return file.read()

    def _write(self, name: str, content: bytes) -> None:
        temporary, mode = self.folder / f".{secrets.token_hex(8)}.tmp", 0o600 if self.private else 0o666
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, self.folder / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def entries(self) -> list[Entry]:
        """Return all readable entries, the last used one first."""
        entries = []
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError, Unsafe):
                record = _checked(json.loads(self._read(path)), path.stem)
                library = self.folder / f"{record['library']}.so"
                entries.append(Entry(path.stem, record, library, path.stat().st_mtime))
        return sorted(entries, key=lambda entry: -entry.last_use)

    def remove(self, entry: Entry) -> None:
        """Remove an entry. Processes that run its library keep it until they end."""
        _discard(self.folder / f"{entry.key}.json")
        _discard(entry.library)

    def clear(self) -> int:
        """Remove everything that this class wrote. Return the number of entries."""
        removed = 0
        for path in list(self.folder.iterdir()):
            if (
                _KEY.match(path.stem)
                and path.suffix in (".json", ".so", ".note")
                or _TEMPORARY.match(path.name)
            ):
                path.unlink(missing_ok=True)
                removed += path.suffix == ".json"
        return removed

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(s.st_size for _, s in self._files())

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()

    def _evict(self, limit: int) -> None:
        """Remove the entries that were not used for the longest time, if the files take more than `limit`."""
        files = dict(self._files())
        total, now = sum(s.st_size for s in files.values()), time.time()
        for path, status in files.items():
            if _TEMPORARY.match(path.name) and now - status.st_mtime > _ABANDONED:
                path.unlink(missing_ok=True)
        if total <= limit:
            return
        with _locked(self.folder):
            for entry in reversed(self.entries()):
                if total <= _KEEP * limit:
                    break
                total -= entry.record["bytes"]
                self.remove(entry)
            named = {entry.library for entry in self.entries()}
            for path, status in files.items():  # files of a writer that was interrupted
                if path.suffix == ".so" and path not in named and now - status.st_mtime > _ABANDONED:
                    path.unlink(missing_ok=True)


def check_private(folder: Path) -> None:
    """Raise Unsafe if somebody else than this user and root could replace what is in the folder."""
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise Unsafe(f"{folder} is no folder; set ONEFLOW_CACHE_DIR to a folder of your own")
    _check_own(folder, status)
    for parent in folder.parents:
        status = parent.stat()
        shared = (
            status.st_mode & stat.S_IWOTH or status.st_mode & stat.S_IWGRP and status.st_gid != os.getgid()
        )
        if status.st_uid not in (0, os.getuid()) or shared and not status.st_mode & stat.S_ISVTX:
            raise Unsafe(
                f"other users may replace {folder}, because {parent} has the owner {status.st_uid} and the"
                f" mode {stat.S_IMODE(status.st_mode):o}; set ONEFLOW_CACHE_DIR to a folder of your own"
            )


def _check_own(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.getuid():
        raise Unsafe(f"{path} belongs to user {status.st_uid}, this is user {os.getuid()}; remove it")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = f"{stat.S_IMODE(status.st_mode):o}"
        raise Unsafe(f"{path} has the mode {mode}, so others may write it; run chmod go-w {path}")


def _discard(path: Path) -> None:
    """Remove a file if it is there and the folder can be written."""
    with contextlib.suppress(OSError):
        path.unlink()


def _checked(record: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the record of an entry if it has the form that put() writes."""
    if record["format"] != FORMAT or record["key"] != key or not _KEY.match(record["library"]):
        raise ValueError("another format")
    return record


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time evict entries."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _warn_once(message: str) -> None:
    if message not in _told:
        _told.add(message)
        warnings.warn(message, stacklevel=2)
