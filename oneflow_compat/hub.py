"""oneflow.hub: models from GitHub repositories and weights from URLs, kept under OneFlow's cache folder.

torch.hub does the work, with two differences. The folder is $ONEFLOW_HOME/hub, else
$XDG_CACHE_HOME/oneflow/hub, else ~/.cache/oneflow/hub. Weights are opened by `oneflow.load`, which also reads
zipped OneFlow folders.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal

from torch import hub as _hub
from torch.hub import (  # noqa: F401
    HASH_REGEX,
    MODULE_HUBCONF,
    READ_DATA_CHUNK,
    VAR_DEPENDENCY,
)

from . import _bind, _env
from ._file_safety import atomic
from ._file_safety.errors import RefusedError, named_errors
from ._file_safety.opening import open_regular, open_zip
from ._file_safety.shown import shown
from ._files import serialization
from ._files.downloads import download_url_to_file

if TYPE_CHECKING:
    import builtins
    import zipfile
    from collections.abc import Iterator


DEFAULT_CACHE_DIR = "~/.cache"
ENV_GITHUB_TOKEN, ENV_ONEFLOW_HOME, ENV_XDG_CACHE_HOME = "GITHUB_TOKEN", "ONEFLOW_HOME", "XDG_CACHE_HOME"
_folder = None


def get_dir() -> str:
    """The folder of repositories and weights."""
    if _folder is not None:
        return _folder
    home = _env.get(ENV_ONEFLOW_HOME) or os.path.join(
        _env.get(ENV_XDG_CACHE_HOME) or DEFAULT_CACHE_DIR, "oneflow"
    )
    return os.path.join(os.path.expanduser(home), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep repositories and weights under `d` from now on."""
    global _folder
    _folder = os.path.expanduser(os.fspath(d))


@contextlib.contextmanager
def _our_folder() -> Iterator[None]:
    before = _hub._hub_dir
    _hub.set_dir(get_dir())
    try:
        yield
    finally:
        _hub._hub_dir = before


def _check_repository(repository: object) -> None:
    """Refuse what is no name of a repository; torch would unpack its parts without a word."""
    if not isinstance(repository, str) or repository.partition(":")[0].count("/") != 1:
        raise ValueError(
            f"oneflow.hub: a repository is named 'owner/name' or 'owner/name:branch', found {repository!r};"
            " hub.load(folder, model, source='local') takes a folder"
        )


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | Literal["check"] | None = None,
    **kwargs: Any,
) -> builtins.list[str]:
    """Names of the entry points that a repository's hubconf.py offers."""
    _check_repository(github)
    with _our_folder():
        return _hub.list(github, force_reload, skip_validation, trust_repo, **kwargs)


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | Literal["check"] | None = None,
) -> Any:
    """The docstring of an entry point."""
    _check_repository(github)
    with _our_folder():
        return _hub.help(github, model, force_reload, skip_validation, trust_repo)


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: Literal["github", "local"] = "github",
    trust_repo: bool | Literal["check"] | None = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Call an entry point of hubconf.py: source="github" (owner/name:branch) or "local" (a folder).

    Runs the repository's code.
    """
    if source == "github":
        _check_repository(repo_or_dir)
    with _our_folder():
        return _hub.load(
            repo_or_dir,
            model,
            *args,
            source=source,
            trust_repo=trust_repo,
            force_reload=force_reload,
            verbose=verbose,
            skip_validation=skip_validation,
            **kwargs,
        )


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool | None = None,
) -> Any:
    """Download a checkpoint once, into `model_dir` (get_dir()/checkpoints), and load it with `oneflow.load`.

    check_hash compares the SHA-256 prefix in a file name like name-0123abcd.pth. A zip file that holds
    a OneFlow folder is unpacked beside itself. Safe as `oneflow.load` is; weights_only=False opts out.
    """
    import re
    from urllib.parse import urlparse

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.fspath(model_dir)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        match = re.search(HASH_REGEX, os.path.basename(path)) if check_hash else None
        download_url_to_file(url, path, match[1] if match else None, progress=progress)
    return serialization.load(_unpacked(path), map_location=map_location, weights_only=weights_only)


# a zip file unpacks to at most 8 bytes for each of its own, and 64 MiB
_UNPACKED_FACTOR, _UNPACKED_ALLOWANCE = 8, 64 << 20


def _unpacked(path: str) -> str:
    """The OneFlow folder in a zip file, unpacked once; any other file is itself."""
    import shutil
    import tempfile
    import zipfile

    if not zipfile.is_zipfile(path):
        return path
    with open_regular(path) as file, named_errors(path), open_zip(file, os.path.getsize(path)) as archive:
        marks = [n for n in archive.namelist() if os.path.basename(n) in ("pickled_data", "snapshot_done")]
        if not marks:
            return path
        _check_names(archive)
        target = path + ".unpacked"
        if not os.path.isdir(target):
            fresh = tempfile.mkdtemp(prefix=os.path.basename(target), dir=os.path.dirname(path))
            try:
                _unpack(archive, fresh, os.path.getsize(path))
                os.chmod(fresh, 0o777 & ~atomic.umask())
                os.replace(fresh, target)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
    return os.path.join(target, os.path.dirname(min(marks, key=len)))


def _check_names(archive: zipfile.ZipFile) -> None:
    """Raise RefusedError if a member could be written outside of the folder."""
    for name in archive.namelist():
        parts = name.split("/")
        leads_out = not {".", ".."}.isdisjoint(parts) or name.startswith("/") or ":" in parts[0]
        if leads_out or "\\" in name or "\0" in name:
            raise RefusedError(f"altered or hostile: its member {shown(name)} leads out of the folder")


def _unpack(archive: zipfile.ZipFile, folder: str, zip_size: int) -> None:
    """Write the plain files of a zip file below `folder`; too many bytes are refused."""
    left = _UNPACKED_ALLOWANCE + _UNPACKED_FACTOR * zip_size
    for member in archive.infolist():
        left -= member.file_size
        if left < 0:
            raise RefusedError(
                f"hostile: it unpacks to more than {_UNPACKED_FACTOR} times its {zip_size} bytes. If you"
                " trust the file, unpack it yourself, and load the folder"
            )
        target = os.path.join(folder, member.filename)
        if member.is_dir():
            os.makedirs(target, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # a link in the zip file is written as a plain file
        with archive.open(member) as packed, open(target, "xb") as file:
            file.write(packed.read())


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.hub")
