"""Progress and errors of downloads. ONEFLOW_QUIET=1 hides the progress."""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.error
from collections.abc import Iterator

from torch import hub

from .. import _env


def shows_progress() -> bool:
    """Whether downloads write to stderr."""
    return not _env.is_set("ONEFLOW_QUIET") and sys.stderr is not None  # None if there is no console


def announce(url: str, path: str | os.PathLike[str]) -> None:
    """Write the line above the progress bar to stderr."""
    print(f"oneflow: downloading {url} to {path}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def named_failures(url: str) -> Iterator[None]:
    """Add the URL to the error of a failed download. The error keeps torch's class."""
    try:
        yield
    except urllib.error.HTTPError as error:
        message = f"{error.msg}: {url}. Check the address, or whether the file needs a login"
        raise urllib.error.HTTPError(url, error.code, message, error.hdrs, None) from error
    except urllib.error.ContentTooShortError as error:
        message = f"{error}: {url}. The connection broke; try again"
        raise urllib.error.ContentTooShortError(message, error.content) from error
    except urllib.error.URLError as error:
        reason = f"{error.reason}: {url}. Check the address and the network"
        raise urllib.error.URLError(reason) from error
    except RuntimeError as error:
        if not str(error).startswith("invalid hash value"):
            raise
        raise RuntimeError(
            f"{error}: the download of {url} was removed. Try again; if the values stay, the file at that"
            " address is another one than expected"
        ) from error


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Download the file at `url` to the path `dst`, with a progress bar on stderr.

    An existing file is replaced when the download is complete. `hash_prefix` is the beginning of the
    expected SHA-256; a mismatch raises RuntimeError. ONEFLOW_QUIET=1 hides the progress bar.
    """
    progress = progress and shows_progress()
    if progress:
        announce(url, dst)
    with named_failures(url):
        hub.download_url_to_file(url, os.fspath(dst), hash_prefix, progress=progress)
