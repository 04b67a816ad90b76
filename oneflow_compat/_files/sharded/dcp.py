"""Read the folders of torch.distributed.checkpoint, which executes nothing that they name.

`.metadata` is a pickle: the unpickler of this package reads it, and makes plain values of the dataclasses of
torch. An item of a data file is a torch file of one tensor or one value, which the same unpickler reads.
"""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import torch

from ..._file_safety import torch_file
from ..._file_safety.budget import Budget
from ..._file_safety.constructors.allow import Constructor
from ..._file_safety.constructors.numpy_values import Shell
from ..._file_safety.errors import CheckpointError, named_errors
from ..._file_safety.shown import shown
from ..._file_safety.unpickler import Unpickler
from .. import layout
from .boxes import Box, covers
from .index import Chunk, TensorEntry, is_plain_name
from .trees import DEPTH, Encoder, Path

METADATA = ".metadata"
_LIMIT = 1 << 30  # bytes of the metadata
_BYTES = "a value"  # stands for BytesStorageMetadata, which has no fields


# --------------------------------------------------------------------------- the pickle
class _Fields(Shell):
    """A dataclass of torch, which becomes the dict of its fields."""

    def build(self, state: Any, budget: Budget) -> Any:
        if type(state) is not dict:
            raise CheckpointError(f"altered: the state of a {type(self).__name__} is {shown(state)}")
        return state


class _Properties(Shell):
    """The properties of a tensor, which become its dtype."""

    def build(self, state: Any, budget: Budget) -> Any:
        if type(state) is not tuple or not state or not isinstance(state[0], torch.dtype):
            raise CheckpointError(f"altered: the properties of a tensor are {shown(state)}")
        return state[0]


class _Index(_Fields):
    """The key of an item, which becomes (name, offsets)."""

    def build(self, state: Any, budget: Budget) -> Any:
        fields = super().build(state, budget)
        name, offsets = fields.get("fqn"), fields.get("offset")
        if type(name) is not str or offsets is not None and not isinstance(offsets, torch.Size):
            raise CheckpointError(f"altered: an item of {shown(name)} at {shown(offsets)}")
        return name, None if offsets is None else tuple(offsets)


_METADATA, _FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
_OLDER = "torch.distributed._shard.sharded_tensor.metadata"
_MEMORY_FORMAT = Constructor("MEM_FORMAT_ENCODING", lambda budget, value: None)
_NAMES: dict[tuple[str, str], Any] = {
    (_METADATA, "Metadata"): _Fields,
    (_METADATA, "TensorStorageMetadata"): _Fields,
    (_METADATA, "ChunkStorageMetadata"): _Fields,
    (_METADATA, "StorageMeta"): _Fields,
    (_METADATA, "BytesStorageMetadata"): Constructor("BytesStorageMetadata", lambda budget: _BYTES),
    (_METADATA, "TensorProperties"): _Properties,
    (_METADATA, "MetadataIndex"): _Index,
    (_METADATA, "_MEM_FORMAT_ENCODING"): _MEMORY_FORMAT,
    (_FILES, "_StorageInfo"): _Fields,
    (_OLDER, "TensorProperties"): _Properties,
    (_OLDER, "MEM_FORMAT_ENCODING"): _MEMORY_FORMAT,
}


class _Reader(Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        own = _NAMES.get((module, name))
        return super().find_class(module, name) if own is None else own


def _metadata_in(data: bytes) -> dict[str, Any]:
    budget = Budget(len(data))
    content = _Reader(io.BytesIO(data), len(data), budget).load()
    budget.finish()
    tables = ("state_dict_metadata", "storage_data")
    if type(content) is not dict or any(type(content.get(name)) is not dict for name in tables):
        raise CheckpointError(f"altered: the metadata has no {' and '.join(tables)}")
    return content


# --------------------------------------------------------------------------- the folder
@dataclass(frozen=True)
class Item(Chunk):
    """A chunk, and the bytes of its file that hold it as a torch file."""

    offset: int = 0
    length: int = 0


def is_dcp(folder: str) -> bool:
    """Whether a folder was written by torch.distributed.checkpoint."""
    return os.path.lexists(os.path.join(folder, METADATA))


@contextlib.contextmanager
def open_folder(folder: str, root: str | None, check_crc: bool) -> Iterator[DcpFolder]:
    """Open a folder of torch.distributed.checkpoint. `root` None: links out of the folder are followed."""
    with contextlib.ExitStack() as stack:
        yield DcpFolder(folder, root, stack)


class DcpFolder:
    """A folder of torch.distributed.checkpoint whose metadata has been read and checked."""

    ranks = 1  # the folder does not say

    def __init__(self, folder: str, root: str | None, stack: contextlib.ExitStack) -> None:
        self._folder, self._root, self._stack = folder, root, stack
        path = os.path.join(folder, METADATA)
        with named_errors(path), layout.open_inside(root, path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LIMIT:
                raise CheckpointError(f"it has {size} bytes; metadata has at most {_LIMIT}")
            data = file.read(size)
            content = _metadata_in(data)
            self.size, self.digest = len(data), zlib.crc32(data)
            self.tensors: dict[str, TensorEntry] = {}
            self._values: dict[str, torch.Tensor] = {}  # tensors inside of values
            self._file_names: list[str] = []
            self._items = self._items_of(content["storage_data"])
            self.tree = self._tree_of(content)

    def _items_of(self, storage: dict[Any, Any]) -> dict[Any, tuple[int, int, int]]:
        """Return {(name, offsets): (file, offset, length)} of the items, which must not overlap."""
        items: dict[Any, tuple[int, int, int]] = {}
        indices: dict[str, int] = {}
        for key, info in storage.items():
            if type(key) is not tuple or len(key) != 2 or type(info) is not dict:
                raise CheckpointError(f"altered: the item {shown(key)} is {shown(info)}")
            name: Any = info.get("relative_path")
            offset: Any = info.get("offset")
            length: Any = info.get("length")
            if not is_plain_name(name) or not _is_count(offset) or not _is_count(length):
                raise CheckpointError(
                    f"altered: the item {shown(key)} is bytes {shown(offset)}, {shown(length)} of the file"
                    f" {shown(name)}; a file is a name without folders"
                )
            if info.get("transform_descriptors"):
                raise CheckpointError(
                    f"the item {shown(key)} is stored with {shown(info['transform_descriptors'])}; only items"
                    " without transforms are read"
                )
            items[key] = indices.setdefault(name, len(indices)), offset, length
        self._file_names = list(indices)
        self._check_ranges(items)
        return items

    def _check_ranges(self, items: dict[Any, tuple[int, int, int]]) -> None:
        end, file = 0, -1
        for file_index, offset, length in sorted(items.values()):
            if file_index != file:
                file, end = file_index, 0
                handle = self._open(file_index)
                size = os.fstat(handle.fileno()).st_size
                handle.close()
            if offset < end or offset + length > size:
                raise CheckpointError(
                    f"altered: its items are bytes {shown(offset)}..{shown(offset + length)} of"
                    f" {shown(self._file_names[file_index])}, which has {size} bytes; those before end at"
                    f" {shown(end)}"
                )
            end = offset + length

    def _open(self, file_index: int) -> IO[bytes]:
        return layout.open_inside(self._root, os.path.join(self._folder, self._file_names[file_index]))

    def _load(self, file_index: int, offset: int, length: int) -> Any:
        """Return the object in an item."""
        name = os.path.join(self._folder, self._file_names[file_index])
        with named_errors(name), self._open(file_index) as file:
            return torch_file.load_zip(_Slice(file, offset, length), length)  # type: ignore[arg-type]

    # ------------------------------------------------------------------- the object
    def _tree_of(self, content: dict[str, Any]) -> Any:
        paths = content.get("planner_data")
        root: dict[Any, Any] = {}
        for name, about in content["state_dict_metadata"].items():
            path = paths.get(name, (name,)) if type(paths) is dict else (name,)
            if type(name) is not str or not _is_path(path):
                raise CheckpointError(f"altered: {shown(name)} stands at {shown(path)}")
            node = root
            for key in path[:-1]:
                node = node.setdefault(key, {})
                if type(node) is not dict:
                    raise CheckpointError(f"altered: {shown(name)} stands inside of a value")
            if path[-1] in node:
                raise CheckpointError(f"altered: two values stand at {shown(path)}")
            node[path[-1]] = _Leaf(self._leaf(name, about))
        return _as_tree(root)

    def _leaf(self, name: str, about: Any) -> Any:
        if about == _BYTES and type(about) is str:
            return self._encoded(name)
        if type(about) is not dict or not isinstance(about.get("properties"), torch.dtype):
            raise CheckpointError(f"altered, or of another torch: {shown(name)} is {shown(about)}")
        self.tensors[name] = self._entry(name, about)
        return {"tensor": name}

    def _encoded(self, name: str) -> Any:
        """Return the tree of a value."""
        if (name, None) not in self._items:
            raise CheckpointError(f"altered: the value {shown(name)} is in no file")
        item = self._items[name, None]
        self.size += item[2]
        value = self._load(*item)
        if isinstance(value, io.BytesIO):
            raise CheckpointError(f"altered: {shown(name)} is no value")

        def add(tensor: torch.Tensor, path: Path) -> str:
            inner = f"{name}/{len(self._values)}"
            self._values[inner] = tensor.detach()
            chunk = Item(Box.full(tensor.shape), -1, 0)
            chunks = [chunk] if tensor.numel() else []
            self.tensors[inner] = TensorEntry(tensor.dtype, tuple(tensor.shape), chunks)
            return inner

        try:
            return Encoder(add).encode(value)
        except (TypeError, ValueError):
            raise CheckpointError(f"{shown(name)} holds {shown(value)}, which is no plain value") from None

    def _entry(self, name: str, about: dict[str, Any]) -> TensorEntry:
        shape, chunks = about.get("size"), about.get("chunks")
        if not isinstance(shape, torch.Size) or type(chunks) is not list:
            raise CheckpointError(f"altered: the tensor {shown(name)} is {shown(about)}")
        items = [self._item(name, chunk, len(shape)) for chunk in chunks]
        items = [item for item in items if item.box.count]
        if min(shape, default=0) < 0 or not covers(shape, [item.box for item in items]):
            raise CheckpointError(
                f"altered: the {len(items)} chunks of {shown(name)} do not cover its shape {shown(shape)}"
            )
        return TensorEntry(about["properties"], tuple(shape), items)

    def _item(self, name: str, chunk: Any, dims: int) -> Item:
        fields: dict[str, Any] = chunk if type(chunk) is dict else {}
        offsets: Any = fields.get("offsets")
        sizes: Any = fields.get("sizes")
        are_sizes = isinstance(offsets, torch.Size) and isinstance(sizes, torch.Size)
        if not are_sizes or not len(offsets) == len(sizes) == dims or min((*offsets, *sizes), default=0) < 0:
            raise CheckpointError(f"altered: a chunk of {shown(name)} is {shown(chunk)}")
        box = Box(tuple(offsets), tuple(sizes))
        if not box.count:
            return Item(box, -1, 0)
        if (name, box.offsets) not in self._items:
            raise CheckpointError(
                f"altered: the chunk of {shown(name)} at {shown(box.offsets)} is in no file"
            )
        file, offset, length = self._items[name, box.offsets]
        return Item(box, file, 0, offset, length)

    # ------------------------------------------------------------------- values
    def check(self, share: int, shares: int, check_crc: bool) -> None:
        """Check the items of every `shares`-th file, if the checksums are to be compared."""
        for name, entry in self.tensors.items():
            for chunk in entry.chunks:
                if check_crc and chunk.file >= 0 and chunk.file % shares == share:
                    self._tensor(name, chunk)

    def read(self, name: str, chunk: Chunk, box: Box, out: torch.Tensor, check_crc: bool) -> None:
        """Copy a part of a chunk to a tensor."""
        out.copy_(self._tensor(name, chunk)[box.slices()])

    def _tensor(self, name: str, chunk: Chunk) -> torch.Tensor:
        if name in self._values:
            return self._values[name]
        assert isinstance(chunk, Item)
        value = self._load(chunk.file, chunk.offset, chunk.length)
        dtype = self.tensors[name].dtype
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            raise CheckpointError(f"altered: the chunk of {shown(name)} is {shown(value)}, no dense tensor")
        if tuple(value.shape) != chunk.box.sizes or value.dtype != dtype:
            raise CheckpointError(
                f"altered: the chunk of {shown(name)} is {shown(value.shape)} of {value.dtype}; the metadata"
                f" says {shown(chunk.box.sizes)} of {dtype}"
            )
        return value.detach()


@dataclass(frozen=True)
class _Leaf:
    """The tree of a value, as opposed to a dict that is still being filled."""

    tree: Any


def _as_tree(node: Any) -> Any:
    """Return the tree of nested dicts. A dict with the keys 0, 1, 2, ... was a list."""
    if isinstance(node, _Leaf):
        return node.tree
    if node and all(type(key) is int for key in node) and sorted(node) == list(range(len(node))):
        return [_as_tree(node[key]) for key in range(len(node))]
    return {"dict": [[key, _as_tree(item)] for key, item in node.items()]}


def _is_path(path: Any) -> bool:
    return type(path) is tuple and 0 < len(path) <= DEPTH and all(type(key) in (str, int) for key in path)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


class _Slice:
    """A part of a file, as a file of its own."""

    def __init__(self, file: IO[bytes], begin: int, length: int) -> None:
        self._file, self._begin, self._length = file, begin, length
        file.seek(begin)

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell() - self._begin

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._length}[whence]
        if start + offset < 0:
            raise CheckpointError("truncated or altered: it names an offset before its beginning")
        self._file.seek(self._begin + start + offset)
        return start + offset

    def read(self, count: int = -1) -> bytes:
        left = max(self._length - self.tell(), 0)
        return self._file.read(left if count is None or count < 0 else min(count, left))
