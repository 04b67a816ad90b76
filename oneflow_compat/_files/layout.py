"""OneFlow's checkpoint folders.

A checkpoint folder holds `pickled_data` (see `pickles`) and one folder per tensor with `meta` (text:
shape and element type) and `out` (the values, little-endian, row-major). Older checkpoints have no
`pickled_data`: each sub-folder is one named variable. We add a file `crc32` to each tensor folder, which
OneFlow ignores.

Replacing `pickled_data` is the commit: new tensors get new folder names, then `pickled_data` is replaced in
one step, then the tensors of the old checkpoint are removed. A crash leaves a complete checkpoint.
"""

import contextlib
import errno
import math
import os
import re
import shutil
import zlib
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import torch

from .._file_safety import atomic
from .._file_safety.errors import CheckpointError, RefusedError, named_errors
from .._file_safety.opening import open_regular
from .._file_safety.shown import plain_text, shown
from . import dtypes

PICKLE, META, DATA, CHECK, LEGACY_MARK = "pickled_data", "meta", "out", "crc32", "snapshot_done"
_TENSOR_FOLDER = re.compile(r"(?:global_)?tensor_(\d+)\Z")


# --------------------------------------------------------------------------- meta
def meta_text(shape: Sequence[int], dtype: torch.dtype) -> str:
    """Return the content of a meta file."""
    dims = "".join(f"  dim: {d}\n" for d in shape)
    return f"shape {{\n{dims}}}\ndata_type: {dtypes.name_of(dtype)}\n"


def parse_meta(line: str, path: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and the element type of a meta file."""
    words = re.findall(r"[\w]+|[^\s\w]", line)
    words = [w for w in words if w not in ",;"]
    dims, at = [], 0
    good = words[:1] == ["shape"]
    at = 2 if words[1:2] == [":"] else 1
    good, at = good and words[at : at + 1] == ["{"], at + 1
    while good and words[at : at + 2] == ["dim", ":"] and at + 2 < len(words) and words[at + 2].isdecimal():
        dims.append(int(words[at + 2]))
        at += 3
    tail = words[at:]
    if not good or len(tail) != 4 or tail[:3] != ["}", "data_type", ":"]:
        raise CheckpointError.of(
            path, f"not a OneFlow meta file (a shape and a data_type), found {shown(line)}"
        )
    if tail[3] not in dtypes.PROTO:
        raise CheckpointError.of(
            path, f"element type {plain_text(tail[3])} is none of {', '.join(dtypes.PROTO)}"
        )
    return tuple(dims), tail[3]


# --------------------------------------------------------------------------- one tensor
def write_tensor(folder: str, tensor: torch.Tensor) -> None:
    """Write one tensor folder, flushed to disk."""
    array = dtypes.to_numpy(tensor)
    os.makedirs(folder)
    with atomic.new_file(os.path.join(folder, DATA)) as file:
        file.write(_bytes_of(array))
    atomic.write_synced(os.path.join(folder, META), meta_text(tensor.shape, tensor.dtype).encode())
    atomic.write_synced(os.path.join(folder, CHECK), f"{_checksum_of(array)}\n".encode())
    atomic.sync_folder(folder)


def _checksum_of(array: np.ndarray) -> str:
    return f"{zlib.crc32(array.reshape(-1).view(np.uint8).data):08x}"


def _bytes_of(array: np.ndarray) -> bytes | memoryview:
    if array.dtype.byteorder == ">":
        return array.tobytes()
    return array.reshape(-1).data.cast("B") if array.size else b""


def open_inside(root: str | None, *names: str) -> IO[bytes]:
    """Open a regular file of a checkpoint folder.

    A link that leads out of `root` is refused (root None: a trusted folder).
    """
    path = os.path.join(*names)
    if root is not None:
        real, home = os.path.realpath(path), os.path.realpath(root)
        if os.path.commonpath([real, home]) != home:
            raise RefusedError.of(
                path,
                f"a link to {real}, outside of the checkpoint. If you trust it, load it with"
                " weights_only=False",
            )
    try:
        return open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError.of(path, "missing; the checkpoint is incomplete") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CheckpointError.of(path, "altered: a link to itself") from None


def read_tensor(folder: str, root: str | None = None) -> torch.Tensor:
    """Read one tensor folder of `root`. Its size must match `meta`; its values must match `crc32`, if that
    file exists.
    """
    return read_data(folder, root, *read_meta(folder, root))


def read_meta(folder: str, root: str | None) -> tuple[tuple[int, ...], str]:
    """Return the shape and the element type of a tensor folder."""
    meta = os.path.join(folder, META)
    with named_errors(meta), open_inside(root, folder, META) as file:
        return parse_meta(file.read(1 << 16).decode("utf-8", "replace"), meta)


def read_data(folder: str, root: str | None, shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Read the values of a tensor folder, which must be those of a tensor of this shape and element type."""
    data = os.path.join(folder, DATA)
    with named_errors(data), open_inside(root, folder, DATA) as file:
        array = _read_values(file, data, shape, name)
        _check_sum(folder, data, array, root)
        _, dtype, stored = dtypes.PROTO[name]
        array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        tensor = torch.from_numpy(array)
        if array.dtype.itemsize == 2 and dtype is torch.bfloat16:
            return tensor.view(torch.bfloat16)
        return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _read_values(file: Any, data: Any, shape: Any, name: Any) -> np.ndarray:
    """Return the values of a data file, whose size must match the shape."""
    _, _, stored = dtypes.PROTO[name]
    size, count = os.fstat(file.fileno()).st_size, math.prod(shape)
    if name == "kBFloat16" and size == 2 * count and count:
        stored = np.int16
    expected = count * np.dtype(stored).itemsize
    if size != expected:
        raise CheckpointError.of(
            data,
            f"truncated or altered: {META} says {shown(list(shape))} of {name}, {shown(expected)} bytes;"
            f" found {size}",
        )
    return np.fromfile(file, dtype=np.dtype(stored).newbyteorder("<"), count=count).reshape(shape)


def _check_sum(folder: str, data: Any, array: np.ndarray, root: str | None) -> None:
    if not os.path.lexists(os.path.join(folder, CHECK)):
        return
    with open_inside(root, folder, CHECK) as file:
        expected = file.read(64).decode("ascii", "replace").strip()
    checksum = _checksum_of(array)
    if checksum != expected:
        raise CheckpointError.of(
            data, f"altered: its CRC-32 is {checksum}, {CHECK} beside it says {plain_text(expected)}"
        )


# --------------------------------------------------------------------------- writing a folder
class Writer:
    """Collect the tensors of one checkpoint folder; `commit` makes it the checkpoint."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._is_new = not os.path.isdir(self.folder)
        os.makedirs(self.folder, exist_ok=True)
        self._lock = atomic.lock_folder(self.folder)  # processes that save to one folder wait for each other
        numbers_in_use = [int(m[1]) for m in map(_TENSOR_FOLDER.match, os.listdir(self.folder)) if m]
        self._next = max(numbers_in_use, default=-1) + 1
        self.names: list[str] = []

    def add(self, tensor: torch.Tensor) -> str:
        name = f"tensor_{self._next}"
        self._next += 1
        self.names.append(name)  # noted before it is written, so that a failure removes the folder
        write_tensor(os.path.join(self.folder, name), tensor)
        return name

    def commit(self, pickled: bytes) -> None:
        atomic.sync_folder(self.folder)
        with atomic.replacing(os.path.join(self.folder, PICKLE)) as file:
            file.write(pickled)
        self._remove_older()
        self._lock()

    def _remove_older(self) -> None:
        kept = set(self.names)
        for name in os.listdir(self.folder):
            if _TENSOR_FOLDER.match(name) and name not in kept:
                _remove_tensor(os.path.join(self.folder, name))

    def abandon(self) -> None:
        """Remove everything that was written. The old checkpoint stays."""
        for name in self.names:
            shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        self._lock()
        if self._is_new:
            with contextlib.suppress(OSError):  # another process may have written into the folder
                os.rmdir(self.folder)


def _remove_tensor(folder: str | os.PathLike[str]) -> None:
    """Remove a tensor folder of an older checkpoint. Keep files that a user put there."""
    if not os.path.islink(folder) and set(os.listdir(folder)) <= {META, DATA, CHECK}:
        shutil.rmtree(folder, ignore_errors=True)


# --------------------------------------------------------------------------- reading folders
def tensor_folder(root: str, name: Any) -> str:
    """Return the folder of a tensor that `pickled_data` names. Refuse a name that leads out of `root`."""
    is_plain = isinstance(name, str) and os.path.basename(name) == name and name not in ("", ".", "..")
    if not is_plain or "\\" in name or "\0" in name:
        raise CheckpointError.of(
            os.path.join(root, PICKLE),
            f"altered: it names the tensor folder {shown(name)}, which is not a plain name",
        )
    return os.path.join(root, name)


def read_variables(root: str, safe: bool = True) -> dict[str, torch.Tensor]:
    """Read a folder without `pickled_data`, OneFlow's older layout. Return {variable name: tensor}."""
    parts = (META, DATA, CHECK)
    names = sorted(
        n for n in os.listdir(root) if any(os.path.lexists(os.path.join(root, n, p)) for p in parts)
    )
    marked = os.path.exists(os.path.join(root, LEGACY_MARK))
    # tensor folders of the newer layout have such names
    if names and not marked and all(re.fullmatch(r"tensor_\d+", n) for n in names):
        raise CheckpointError.of(os.path.join(root, PICKLE), "missing; the checkpoint is incomplete")
    if not names and not marked:
        raise CheckpointError.of(
            root, f"not a OneFlow checkpoint: neither {PICKLE} nor folders with {META} and {DATA}"
        )
    return {name: read_tensor(os.path.join(root, name), root if safe else None) for name in names}
