"""The files of a sharded checkpoint, opened for reading."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator

import torch

from ..._file_safety.errors import CheckpointError, named_errors
from ..._file_safety.shown import shown
from .. import layout
from . import index
from .boxes import Box
from .index import Chunk, chunk_key
from .shard_files import ShardFile

_OPEN = 200  # files at a time; systems allow a process about 1000


def is_sharded(folder: str) -> bool:
    """Whether a folder has the index of a sharded checkpoint."""
    return os.path.lexists(os.path.join(folder, index.INDEX))


@contextlib.contextmanager
def open_folder(folder: str, root: str | None, check_crc: bool) -> Iterator[ShardedFolder]:
    """Open a sharded checkpoint. `root` None: links out of the folder are followed."""
    with contextlib.ExitStack() as stack:
        yield ShardedFolder(folder, root, stack, check_crc)


class ShardedFolder:
    """A sharded checkpoint whose index has been read and checked."""

    def __init__(self, folder: str, root: str | None, stack: contextlib.ExitStack, check_crc: bool) -> None:
        self._folder, self._root, self._stack = folder, root, stack
        path = os.path.join(folder, index.INDEX)
        with named_errors(path), layout.open_inside(root, path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > index.LIMIT:
                raise CheckpointError(f"it has {size} bytes; an index has at most {index.LIMIT}")
            data = file.read(size)
            read = index.read(data, check_crc)
        self.tensors, self.tree, self.ranks, self.size = read.tensors, read.tree, read.ranks, read.size
        self.digest = zlib.crc32(data)
        self._names_and_sizes = read.files
        self._files: dict[int, ShardFile] = {}

    def _file(self, file_index: int) -> ShardFile:
        if file_index not in self._files:
            if len(self._files) >= _OPEN:
                self._files.pop(next(iter(self._files))).file.close()
            name, size = self._names_and_sizes[file_index]
            path = os.path.join(self._folder, name)
            with named_errors(path):
                file = self._stack.enter_context(layout.open_inside(self._root, path))
                actual = os.fstat(file.fileno()).st_size
                if actual != size:
                    raise CheckpointError(
                        f"truncated or altered: it has {actual} bytes, the index says {shown(size)}"
                    )
                self._files[file_index] = ShardFile(file, path, size)
        return self._files[file_index]

    def check(self, share: int, shares: int, check_crc: bool) -> None:
        """Check every `shares`-th file: that it has the values that the index names, and their checksums."""
        of_file: dict[int, list[tuple[str, Chunk]]] = {}
        for name, entry in self.tensors.items():
            for chunk in entry.chunks:
                of_file.setdefault(chunk.file, []).append((name, chunk))
        for file_index in range(share, len(self._names_and_sizes), shares):
            file = self._file(file_index)
            for name, chunk in of_file.get(file_index, ()):
                entry = self.tensors[name]
                key = chunk_key(name, entry.shape, chunk.box)
                file.check(key, entry.dtype, chunk.box.sizes)
                if check_crc:
                    file.check_sum(key, chunk.crc)

    def read(self, name: str, chunk: Chunk, box: Box, out: torch.Tensor, check_crc: bool) -> None:
        """Copy a part of a chunk to a tensor. `check_crc`: compare the checksum of a full chunk."""
        key = chunk_key(name, self.tensors[name].shape, chunk.box)
        file = self._file(chunk.file)
        file.read(key, chunk.box.sizes, box, out, chunk.crc if check_crc else None)
