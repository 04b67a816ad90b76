"""Snapshots of a store: a folder of numpy files, chunk by chunk, that appears whole or not at all.

<path>/snapshots/<name>/{meta.json, keys-<n>.npy, rows-<n>.npy}. Any store reads what any other wrote.
"""
from __future__ import annotations

import json
import os
import shutil
import zlib

import numpy as np

from .._files.atomic import sync_folder
from .._files.layout import CheckpointError

CHUNK = 1 << 16


def folder_of(path, name: str) -> str:
    if not name or os.path.basename(name) != name or name in (".", ".."):
        raise ValueError(f"a snapshot's name is a plain file name, found {name!r}")
    return os.path.join(path, "snapshots", name)


def write(path, name, chunks, line: int) -> int:
    """Write (keys, rows) arrays as a snapshot; the number of rows. An older one of that name is replaced."""
    target = folder_of(path, name)
    temporary = target + ".tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    total, sums = 0, []
    for n, (keys, rows) in enumerate(chunks):
        parts = (("keys", np.ascontiguousarray(keys, "<i8")), ("rows", np.ascontiguousarray(rows, "<f4")))
        for kind, array in parts:
            with open(os.path.join(temporary, f"{kind}-{n}.npy"), "wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())
        sums.append([len(keys), *(zlib.crc32(a.reshape(-1).view(np.uint8)) for _, a in parts)])
        total += len(keys)
    with open(os.path.join(temporary, "meta.json"), "w", encoding="utf-8") as file:
        json.dump({"format": 1, "line": line, "count": total, "chunks": sums}, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(temporary)
    old = target + ".old"
    shutil.rmtree(old, ignore_errors=True)
    if os.path.exists(target):
        os.rename(target, old)
    os.rename(temporary, target)
    sync_folder(os.path.dirname(target))
    shutil.rmtree(old, ignore_errors=True)
    return total


def read(path, name):
    """(line, iterator of (keys, rows)) of a snapshot; CheckpointError names a file that is damaged."""
    folder = folder_of(path, name)
    if not os.path.isdir(folder) and os.path.isdir(folder + ".old"):
        folder += ".old"  # a crash between the two renames of `write`
    if not os.path.isdir(folder):
        have = sorted(os.listdir(os.path.dirname(folder))) if os.path.isdir(os.path.dirname(folder)) else []
        raise FileNotFoundError(f"there is no snapshot {name!r} in {path!r}; found {', '.join(have) or 'none'}")
    meta_path = os.path.join(folder, "meta.json")
    try:
        with open(meta_path, encoding="utf-8") as file:
            meta = json.load(file)
        line, chunks = int(meta["line"]), meta["chunks"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointError(f"{meta_path}: truncated or altered ({error})") from None
    return line, _chunks(folder, line, chunks)


def _chunks(folder, line, chunks):
    for n, (count, *sums) in enumerate(chunks):
        made = []
        for kind, shape, dtype, wanted in (("keys", (count,), np.int64, sums[0]), ("rows", (count, line), np.float32, sums[1])):
            path = os.path.join(folder, f"{kind}-{n}.npy")
            try:
                array = np.load(path)
            except (OSError, ValueError, EOFError) as error:
                raise CheckpointError(f"{path}: truncated or altered ({error})") from None
            if array.shape != shape or array.dtype != dtype or zlib.crc32(array.reshape(-1).view(np.uint8)) != wanted:
                raise CheckpointError(f"{path}: altered: {array.shape} of {array.dtype} where {shape} of {np.dtype(dtype)} with CRC-32 {wanted:08x} should be")
            made.append(array)
        yield tuple(made)
