"""Snapshots of a store: a folder of numpy files, chunk by chunk, that appears whole or not at all.

<path>/snapshots/<name>/{meta.json, keys-<n>.npy, rows-<n>.npy}. Any store reads what any other wrote.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .._file_safety.atomic import lock_folder, new_file, sync_folder, write_synced
from .._file_safety.errors import CheckpointError, named_errors
from .._file_safety.shown import plain_text, shown
from .._files.layout import open_inside

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping


CHUNK = 1 << 16


def folder_of(path: str | os.PathLike[str], name: str) -> str:
    if not name or os.path.basename(name) != name or name in (".", ".."):
        raise ValueError(f"a snapshot's name is a plain file name, found {name!r}")
    return os.path.join(path, "snapshots", name)


def write(
    path: str | os.PathLike[str], name: str, chunks: Iterable[tuple[np.ndarray, np.ndarray]], line: int
) -> int:
    """Write (keys, rows) arrays as a snapshot; the number of rows. An older one of that name is replaced."""
    target = folder_of(path, name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    unlock = lock_folder(os.path.dirname(target))  # processes that write one snapshot wait for each other
    try:
        return _write(target, chunks, line)
    except BaseException:
        shutil.rmtree(target + ".tmp", ignore_errors=True)
        raise
    finally:
        unlock()


def _write(target: str, chunks: Iterable[tuple[np.ndarray, np.ndarray]], line: int) -> int:
    """Write chunks of (keys, rows) to a temporary folder, and then rename it. Return the number of rows."""
    temporary = target + ".tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    total, sums = 0, []
    for n, (keys, rows) in enumerate(chunks):
        parts = (("keys", np.ascontiguousarray(keys, "<i8")), ("rows", np.ascontiguousarray(rows, "<f4")))
        for part_name, array in parts:
            with new_file(os.path.join(temporary, f"{part_name}-{n}.npy")) as file:
                np.save(file, array)
        sums.append([len(keys), *(zlib.crc32(a.reshape(-1).view(np.uint8).data) for _, a in parts)])
        total += len(keys)
    meta = {"format": 1, "line": line, "count": total, "chunks": sums}
    write_synced(os.path.join(temporary, "meta.json"), json.dumps(meta).encode())
    sync_folder(temporary)
    old = target + ".old"
    shutil.rmtree(old, ignore_errors=True)
    if os.path.exists(target):
        os.rename(target, old)
    os.rename(temporary, target)
    sync_folder(os.path.dirname(target))
    shutil.rmtree(old, ignore_errors=True)
    return total


def read(
    path: str | os.PathLike[str], name: str
) -> tuple[int, Generator[tuple[np.ndarray, np.ndarray], None, None]]:
    """(line, iterator of (keys, rows)) of a snapshot; CheckpointError names a file that is damaged."""
    folder = folder_of(path, name)
    if not os.path.isdir(folder) and os.path.isdir(folder + ".old"):
        folder += ".old"  # a crash between the two renames of `write`
    if not os.path.isdir(folder):
        have = sorted(os.listdir(os.path.dirname(folder))) if os.path.isdir(os.path.dirname(folder)) else []
        raise FileNotFoundError(
            f"there is no snapshot {name!r} in {path!r}; found {', '.join(have) or 'none'}"
        )
    meta_path = os.path.join(folder, "meta.json")
    with named_errors(meta_path), open_inside(folder, meta_path) as file:
        line, chunks = _parse_meta(json.loads(file.read()))
    return line, _chunks(folder, line, chunks)


def _parse_meta(meta: Mapping[str, Any]) -> tuple[int, list[list[int]]]:
    """(line, chunks) of a snapshot's meta file."""
    counts = (meta["line"], meta["count"], *(n for chunk in meta["chunks"] for n in chunk))
    if any(type(n) is not int or not 0 <= n < 1 << 62 for n in counts) or any(
        len(chunk) != 3 for chunk in meta["chunks"]
    ):
        raise CheckpointError("truncated or altered: a chunk is a number of rows and two CRC-32s")
    if sum(chunk[0] for chunk in meta["chunks"]) != meta["count"]:
        raise CheckpointError(f"truncated or altered: its chunks have other than {meta['count']} rows")
    return meta["line"], meta["chunks"]


def _chunks(
    folder: str, line: int, chunks: list[list[int]]
) -> Generator[tuple[np.ndarray, np.ndarray], None, None]:
    for n, (count, keys_sum, rows_sum) in enumerate(chunks):
        keys = _read_array(folder, f"keys-{n}.npy", (count,), "<i8", keys_sum)
        yield keys, _read_array(folder, f"rows-{n}.npy", (count, line), "<f4", rows_sum)


_HEADER = re.compile(rb"\{'descr': '([<>|a-z0-9]+)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n")


def _read_array(folder: str, name: str, shape: tuple[int, ...], dtype: str, checksum: int) -> np.ndarray:
    """The array of a numpy file, which must have this shape, dtype and CRC-32."""
    path = os.path.join(folder, name)
    with named_errors(path), open_inside(folder, path) as file:
        start = file.read(10)
        header = _HEADER.fullmatch(file.read(int.from_bytes(start[8:10], "little")))
        if start[:8] != b"\x93NUMPY\x01\x00" or header is None:
            raise CheckpointError("truncated or altered: it does not begin as a numpy file of a snapshot")
        size, needed = (
            os.fstat(file.fileno()).st_size - file.tell(),
            math.prod(shape) * np.dtype(dtype).itemsize,
        )
        stored_shape = tuple(int(n) for n in header[2].replace(b" ", b"").split(b",") if n)
        if stored_shape != shape or header[1].decode() != dtype or size != needed:
            raise CheckpointError(
                f"truncated or altered: {size} bytes of {plain_text(header[1].decode())} for shape"
                f" {shown(stored_shape)}, where"
                f" {needed} bytes for {shape} of {dtype} should be"
            )
        array = np.fromfile(file, dtype).reshape(shape)
    if zlib.crc32(array.reshape(-1).view(np.uint8).data) != checksum:
        raise CheckpointError.of(path, f"altered: its CRC-32 is not {checksum:08x}, which meta.json says")
    return array.astype(array.dtype.newbyteorder("="), copy=False)
