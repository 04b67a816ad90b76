"""The index of a sharded checkpoint: `checkpoint.json`.

    {"crc32": "5d1c0b2e", "format": "oneflow-sharded", "version": 1, "ranks": 2,
     "files": [["rank-0-of-2-1a2b3c4d.safetensors", 4096], ...],              names and sizes
     "tensors": {"model.weight": {"dtype": "float32", "shape": [4, 8],
                                  "chunks": [[0, [0, 0], [2, 8], 3735928559], ...],
                                  "placement": ["cpu", [0, 1]], "sbp": ["S(0)"]},
                 "head.weight": {..., "view": ["base", 8, [8, 1]]}},
     "object": {"dict": [["model", ...]]}}

A chunk is [file, offsets, sizes, CRC-32 of its bytes]; its values are the entry `chunk_key()` of the file. A
tensor with a "view" shares the memory of another one: [its name, offset, strides], in elements. The "crc32"
is that of all bytes behind its own entry.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from ..._file_safety.errors import CheckpointError
from ..._file_safety.shown import reason, shown
from .boxes import Box, covers
from .shard_files import is_storable
from .tensors import Spread
from .tree_reading import counts, decode_placement, dtype_named, sbp_named
from .trees import encode_placement

INDEX = "checkpoint.json"
FORMAT, VERSION = "oneflow-sharded", 1
LIMIT = 100_000_000  # bytes, as for the header of a safetensors file
_LISTS = 1000  # lists that any index may have


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor and the file that holds it."""

    box: Box
    file: int
    crc: int


@dataclass(frozen=True)
class View:
    """How a tensor views the values of another one."""

    base: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    chunks: Sequence[Chunk] = ()
    spread: Spread | None = None
    view: View | None = None


@dataclass(frozen=True)
class Index:
    """What a sharded checkpoint holds."""

    ranks: int
    files: list[tuple[str, int]]  # names and sizes
    tensors: dict[str, TensorEntry]
    tree: Any
    size: int = field(default=0, compare=False)  # bytes of the file


def chunk_key(name: str, shape: Sequence[int], box: Box) -> str:
    """Return the name of a chunk in its safetensors file: the tensor's name, and the slices of a part."""
    if box == Box.full(shape):
        return name
    slices = (f"{begin}:{begin + size}" for begin, size in zip(box.offsets, box.sizes))
    return f"{name}[{','.join(slices)}]"


# --------------------------------------------------------------------------- writing
def dumps(index: Index) -> bytes:
    """Return the text of an index."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "ranks": index.ranks,
        "files": [list(entry) for entry in index.files],
        "tensors": {name: _entry_to_json(entry) for name, entry in index.tensors.items()},
        "object": index.tree,
    }
    encoded = json.dumps(content, allow_nan=False, separators=(",", ":"))
    data = with_checksum(encoded.encode())
    if len(data) > LIMIT:
        raise ValueError(
            f"layout='sharded': the index of this object has {len(data)} bytes; at most {LIMIT} are possible."
            " Save large lists of numbers as tensors"
        )
    return data


def with_checksum(data: bytes) -> bytes:
    """Return the text of a JSON object with its CRC-32 as the first entry."""
    return b'{"crc32":"%08x",' % zlib.crc32(data[1:]) + data[1:]


_PREFIX = len(with_checksum(b"{"))


def _entry_to_json(entry: TensorEntry) -> dict[str, Any]:
    out: dict[str, Any] = {"dtype": str(entry.dtype).removeprefix("torch."), "shape": list(entry.shape)}
    if entry.view is not None:
        out["view"] = [entry.view.base, entry.view.offset, list(entry.view.strides)]
        return out
    out["chunks"] = [[c.file, list(c.box.offsets), list(c.box.sizes), c.crc] for c in entry.chunks]
    if entry.spread is not None:
        out |= encode_placement(entry.spread.placement)
        out["sbp"] = [rule._ToAttrStr() for rule in entry.spread.nd_sbp]
    return out


# --------------------------------------------------------------------------- reading
def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text from a file. Refuse NaN, repeated names and too many lists."""
    if data.count(b"[") > _LISTS + len(data) // 4:
        raise CheckpointError("altered or hostile: it has more lists than its tensors need")
    try:
        return json.loads(data.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"truncated or altered ({reason(error)})") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise CheckpointError("altered: a name stands twice in an object")
    return out


def _refuse_constant(name: str) -> NoReturn:
    raise CheckpointError(f"altered: {name} is no value of JSON")


def read(data: bytes, check_crc: bool = True) -> Index:
    """Return the index in the bytes of a file."""
    if check_crc and data[:_PREFIX] != with_checksum(b"{" + data[_PREFIX:])[:_PREFIX]:
        raise CheckpointError("truncated or altered: its CRC-32 differs from the one at its beginning")
    content = parse_json(data)
    if type(content) is not dict or content.get("format") != FORMAT:
        raise CheckpointError(f"not the index of a sharded checkpoint: no format {FORMAT!r}")
    if content.get("version") != VERSION:
        raise CheckpointError(f"version {shown(content.get('version'))}; this reader knows {VERSION}")
    if content.keys() != {"crc32", "format", "version", "ranks", "files", "tensors", "object"}:
        raise CheckpointError(f"altered: its entries are {shown(list(content))}")
    ranks = content["ranks"]
    if type(ranks) is not int or not 1 <= ranks <= 1 << 20:
        raise CheckpointError(f"altered: it was saved by {shown(ranks)} ranks")
    files = _files(content["files"])
    if type(content["tensors"]) is not dict:
        raise CheckpointError("altered: its tensors are no object")
    tensors = {name: _entry(name, entry, len(files)) for name, entry in content["tensors"].items()}
    for name, entry in tensors.items():
        _check_view(name, entry, tensors)
    return Index(ranks, files, tensors, content["object"], len(data))


def _files(content: Any) -> list[tuple[str, int]]:
    if type(content) is not list:
        raise CheckpointError("altered: its files are no list")
    names = set()
    for entry in content:
        if type(entry) is not list or len(entry) != 2 or not is_plain_name(entry[0]) or entry[0] in names:
            raise CheckpointError(
                f"altered: it names the file {shown(entry)}; a file is a name without folders, and its size"
            )
        counts(entry[1:])
        names.add(entry[0])
    return [tuple(entry) for entry in content]


def is_plain_name(name: Any) -> bool:
    """Whether a name from a file names an entry of the folder itself."""
    if type(name) is not str or not 0 < len(name) <= 255 or name in (".", ".."):
        return False
    return name.isprintable() and not any(c in name for c in '/\\:"')


def _entry(name: str, entry: Any, files: int) -> TensorEntry:
    if type(entry) is not dict or not {"dtype", "shape"} <= entry.keys():
        raise _bad_entry(name, entry)
    dtype, shape = dtype_named(entry["dtype"]), counts(entry["shape"])
    if not is_storable(dtype):
        raise _bad_entry(name, entry)
    size = dtype.itemsize
    for n in shape:
        size *= max(n, 1)
        if size >= 1 << 62:
            raise CheckpointError(f"altered: the shape of {shown(name)} is {shown(shape)}")
    keys = entry.keys() - {"dtype", "shape"}
    if keys == {"view"}:
        return TensorEntry(dtype, shape, view=_view(name, entry["view"], len(shape)))
    if keys not in ({"chunks"}, {"chunks", "placement", "sbp"}) or type(entry["chunks"]) is not list:
        raise _bad_entry(name, entry)
    chunks = [_chunk(name, chunk, len(shape), files) for chunk in entry["chunks"]]
    if not covers(shape, [chunk.box for chunk in chunks]):
        raise CheckpointError(
            f"altered: the {len(chunks)} chunks of {shown(name)} do not cover its shape {shown(shape)} once"
        )
    spread = _spread(name, entry, len(shape)) if "sbp" in keys else None
    return TensorEntry(dtype, shape, chunks, spread)


def _bad_entry(name: str, entry: object) -> CheckpointError:
    return CheckpointError(f"altered, or of a newer version: the tensor {shown(name)} is {shown(entry)}")


def _chunk(name: str, chunk: Any, dims: int, files: int) -> Chunk:
    if type(chunk) is not list or len(chunk) != 4:
        raise _bad_entry(name, chunk)
    file, crc = counts([chunk[0], chunk[3]])
    offsets, sizes = counts(chunk[1]), counts(chunk[2])
    if file >= files or not len(offsets) == len(sizes) == dims:
        raise _bad_entry(name, chunk)
    return Chunk(Box(offsets, sizes), file, crc)


def _spread(name: str, entry: dict[str, Any], dims: int) -> Spread:
    placement = decode_placement(entry["placement"])
    if type(entry["sbp"]) is not list or len(entry["sbp"]) != placement.ranks.ndim:
        raise _bad_entry(name, entry)
    nd_sbp = tuple(map(sbp_named, entry["sbp"]))
    if any(rule._kind == "partial_sum" or rule._kind == "split" and rule._dim >= dims for rule in nd_sbp):
        raise _bad_entry(name, entry)
    return Spread(placement, nd_sbp)


def _view(name: str, content: Any, dims: int) -> View:
    if type(content) is not list or len(content) != 3 or type(content[0]) is not str:
        raise _bad_entry(name, content)
    (offset,), strides = counts([content[1]]), counts(content[2])
    if len(strides) != dims:
        raise _bad_entry(name, content)
    return View(content[0], offset, strides)


def _check_view(name: str, entry: TensorEntry, tensors: dict[str, TensorEntry]) -> None:
    """Refuse a view that reads beyond its base."""
    if entry.view is None:
        return
    base = tensors.get(entry.view.base)
    last = entry.view.offset + sum((n - 1) * s for n, s in zip(entry.shape, entry.view.strides))
    fits = base is not None and base.view is None and base.spread is None and base.dtype == entry.dtype
    count = 0 if base is None else Box.full(base.shape).count
    if not fits or 0 in entry.shape or last >= count or Box.full(entry.shape).count > count:
        raise CheckpointError(
            f"altered: {shown(name)} views values that {shown(entry.view.base)} does not have"
        )
