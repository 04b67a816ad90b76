"""What the ranks save together: each rank describes its object, and all ranks make the same plan of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..._global.placement import placement as Placement
from ...sbp import broadcast
from ...sbp import sbp as Sbp
from .boxes import Box
from .index import Chunk, TensorEntry, View, chunk_key
from .shard_files import stored_form
from .tensors import Spread, blocks, local_values, spread_of
from .trees import LEAVES, MAPPINGS, Encoder, Path, path_name


@dataclass(frozen=True)
class Described:
    """A tensor of one rank's object, as the other ranks get to know it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    placement: Placement | None = None  # set for a global tensor
    nd_sbp: tuple[Sbp, ...] = ()
    digest: tuple[int, int] | None = None  # hash of the values of a local tensor, if there are several ranks
    base: int | None = None  # the tensor that this one views
    offset: int = 0
    strides: tuple[int, ...] = ()

    @property
    def spread(self) -> Spread | None:
        """The placement and the SBP in the file. A partial sum is summed before."""
        if self.placement is None:
            return None
        summed = (broadcast if rule._kind == "partial_sum" else rule for rule in self.nd_sbp)
        return Spread(self.placement, tuple(summed))


@dataclass
class Description:
    """The object of one rank: its tree, and the tensors that the tree names by number."""

    tree: Any
    tensors: list[Described]


class Describer:
    """Describe an object. `tensors` are its different tensors in the order of the description."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[Any, int] = {}
        self._names: set[str] = {"__metadata__"}
        self._described: list[Described] = []

    def describe(self, obj: Any) -> Description:
        """Return the description of an object. TypeError or NotImplementedError for what cannot be saved."""
        tree = Encoder(self._add).encode(obj)
        for index, base in _views(self.tensors).items():
            tensor, own = self.tensors[index], self._described[index]
            offset = _extent(tensor)[0] - _extent(self.tensors[base])[0]
            self._described[index] = Described(
                own.name, own.dtype, own.shape, base=base, offset=offset, strides=tuple(tensor.stride())
            )
        if self._several:
            self._described = [self._with_digest(*pair) for pair in zip(self._described, self.tensors)]
        return Description(tree, self._described)

    def _add(self, tensor: torch.Tensor, path: Path) -> int:
        _check_dense(tensor, path)
        key = _identity(tensor)
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            self.tensors.append(tensor)
            self._described.append(self._description(tensor, path))
        return self._numbers[key]

    def _description(self, tensor: torch.Tensor, path: Path) -> Described:
        stored_form(tensor.dtype, tensor.shape)
        spread = spread_of(tensor)
        common = self._unique(path_name(path)), tensor.dtype, tuple(tensor.shape)
        if spread is None:
            return Described(*common)
        return Described(*common, spread.placement, spread.nd_sbp)

    def _unique(self, name: str) -> str:
        # chunk_key() adds slices in brackets, and unequal values of ranks a number behind "@"
        name = name.replace("[", "(").replace("]", ")").replace("@", "(at)")
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _with_digest(self, own: Described, tensor: torch.Tensor) -> Described:
        if own.placement is not None or own.base is not None:
            return own
        return Described(own.name, own.dtype, own.shape, digest=_digest(local_values(tensor)))


def _check_dense(tensor: torch.Tensor, path: Path) -> None:
    """Raise NotImplementedError for a tensor without a dense array of values."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        what = "quantized" if tensor.is_quantized else f"{tensor.layout} on {tensor.device}"
        raise NotImplementedError(
            f"layout='sharded' saves dense tensors with values, found {path_name(path)}, which is {what};"
            " save it with the default layout"
        )


def _digest(values: torch.Tensor) -> tuple[int, int]:
    """Return the CRC-32 of the bytes, and the sum of their words: SHA-256 would take three times as long."""
    crc = total = 0
    for block in blocks(values):
        crc = zlib.crc32(block, crc)
        words = np.frombuffer(block[: len(block) // 8 * 8], np.uint64)
        total += int(words.sum(dtype=np.uint64)) + sum(block[len(block) // 8 * 8 :])
    return crc, total % (1 << 64)


def _identity(tensor: torch.Tensor) -> Any:
    """Return a key that is the same for tensors that show the same values in the same memory."""
    local = local_values(tensor)
    if not local.numel():
        return id(tensor)
    spread = spread_of(tensor)
    where = local.data_ptr(), local.device, local.dtype, tuple(local.shape), local.stride(), local.is_conj()
    return where, local.is_neg(), tuple(tensor.shape), spread


def _views(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """Return {number: number of its base} of the local tensors that view a part of another one."""
    by_storage: dict[Any, list[int]] = {}
    for index, tensor in enumerate(tensors):
        if spread_of(tensor) is None and tensor.numel() and not tensor.is_conj() and not tensor.is_neg():
            key = tensor.device, tensor.dtype, tensor.untyped_storage().data_ptr()
            by_storage.setdefault(key, []).append(index)
    bases = {}
    for indices in by_storage.values():
        contiguous = [n for n in indices if tensors[n].is_contiguous()]
        if len(indices) == 1 or not contiguous:
            continue
        base = max(contiguous, key=lambda n: tensors[n].numel())
        begin, _ = _extent(tensors[base])
        for index in indices:
            view_begin, view_last = _extent(tensors[index])
            is_inside = view_begin >= begin and view_last < begin + tensors[base].numel()
            if index != base and is_inside and tensors[index].numel() <= tensors[base].numel():
                bases[index] = base
    return bases


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first and the last element of the storage that a tensor shows."""
    begin = int(tensor.storage_offset())
    return begin, begin + sum((int(n) - 1) * int(s) for n, s in zip(tensor.shape, tensor.stride()))


# --------------------------------------------------------------------------- what all ranks save
@dataclass
class Assignment:
    """A chunk of a tensor, and the rank that writes it."""

    name: str
    box: Box
    key: str
    writer: int
    indices: dict[int, int]  # the ranks that have the chunk -> the tensor's number on the rank


@dataclass
class Plan:
    """What the ranks save: a tree, tensors without chunks, and chunks with the ranks that write them."""

    tree: Any
    tensors: dict[str, TensorEntry] = field(default_factory=dict)
    chunks: list[Assignment] = field(default_factory=list)

    def of_rank(self, rank: int) -> list[Assignment]:
        """Return the chunks that a rank writes."""
        return [chunk for chunk in self.chunks if chunk.writer == rank]

    def entries(self, checksums: dict[str, int], file_of: dict[int, int]) -> dict[str, TensorEntry]:
        """Return the tensors with their chunks. `checksums`: the CRC-32 of each key."""
        chunks: dict[str, list[Chunk]] = {}
        for chunk in self.chunks:
            written = Chunk(chunk.box, file_of[chunk.writer], checksums[chunk.key])
            chunks.setdefault(chunk.name, []).append(written)
        return {
            name: TensorEntry(entry.dtype, entry.shape, chunks.get(name, ()), entry.spread, entry.view)
            for name, entry in self.tensors.items()
        }


def make(descriptions: Sequence[Description]) -> Plan:
    """Return the plan of the objects of all ranks. Every rank makes the same plan.

    RuntimeError if the ranks have different global tensors.
    """
    _check_global(descriptions)
    plan, naming = Plan(None), _Naming()
    holders: dict[tuple[str, Box], dict[int, int]] = {}
    trees: list[Any] = []
    names: list[str] = []
    for rank, description in enumerate(descriptions):
        if rank and _is_same_object(description, descriptions[0]):
            names, tree = naming.of_first, trees[0]
        else:
            names = naming.names_of(description, rank, plan.tensors)
            tree = _renamed(description.tree, names)
        trees.append(tree)
        for index, (name, own) in enumerate(zip(names, description.tensors)):
            _add_holders(holders, name, own, rank, index)
    plan.tree = _merged(trees)
    plan.chunks = _assigned(holders, plan.tensors, len(descriptions))
    return plan


def _check_global(descriptions: Sequence[Description]) -> None:
    """Raise on every rank if the ranks have different global tensors."""
    of_ranks = [[t for t in own.tensors if t.placement is not None] for own in descriptions]
    for rank, tensors in enumerate(of_ranks):
        if tensors == of_ranks[0]:
            continue
        position = next(
            (i for i, (a, b) in enumerate(zip(tensors, of_ranks[0])) if a != b),
            min(len(tensors), len(of_ranks[0])),
        )
        expected = _about(of_ranks[0][position]) if position < len(of_ranks[0]) else "none"
        actual = _about(tensors[position]) if position < len(tensors) else "none"
        raise RuntimeError(
            f"save: the ranks save different objects: global tensor number {position} is {expected} on rank"
            f" 0, and {actual} on rank {rank}. Every rank has to save the same global tensors"
        )


def _about(tensor: Described) -> str:
    return f"{tensor.name} of {tuple(tensor.shape)}, {tensor.dtype}, {tensor.placement}, {tensor.nd_sbp}"


class _Naming:
    """The names of the tensors of a checkpoint."""

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[str, Any]]] = {}  # name on the ranks: names and values
        self.of_first: list[str] = []

    def names_of(self, description: Description, rank: int, entries: dict[str, TensorEntry]) -> list[str]:
        """Return the names of a rank's tensors, and add the entries of those that no earlier rank has.

        A local tensor whose values differ from those of earlier ranks gets the number of its rank.
        """
        names = [""] * len(description.tensors)
        indices = sorted(range(len(names)), key=lambda n: description.tensors[n].base is not None)
        for index in indices:  # views after their bases
            own = description.tensors[index]
            view = None if own.base is None else View(names[own.base], own.offset, own.strides)
            value = own.dtype, own.shape, own.digest, own.placement, own.nd_sbp, view
            alike = self._values.setdefault(own.name, [])
            name = next((name for name, recorded in alike if recorded == value), "")
            if not name:
                name = f"{own.name}@{rank}" if alike else own.name
                alike.append((name, value))
                entries[name] = TensorEntry(own.dtype, own.shape, (), own.spread, view)
            names[index] = name
        self.of_first = self.of_first or names
        return names


def _add_holders(
    holders: dict[tuple[str, Box], dict[int, int]], name: str, own: Described, rank: int, index: int
) -> None:
    """Record the rank as one that has a chunk of a tensor. A view has no chunks."""
    if own.base is not None:
        return
    box: Box | None = Box.full(own.shape)
    if own.spread is not None:
        box = own.spread.box_of(own.shape, rank)
    if box is not None and box.count:
        holders.setdefault((name, box), {})[rank] = index


def _assigned(
    holders: dict[tuple[str, Box], dict[int, int]], entries: dict[str, TensorEntry], ranks: int
) -> list[Assignment]:
    """Return the chunks. The largest are assigned first, each to the rank that writes the fewest bytes."""
    load = [0] * ranks
    writers = {}
    size = lambda item: item[1].count * entries[item[0]].dtype.itemsize
    for item in sorted(holders, key=size, reverse=True):
        writers[item] = min(holders[item], key=lambda rank: (load[rank], rank))
        load[writers[item]] += size(item)
    return [
        Assignment(name, box, chunk_key(name, entries[name].shape, box), writers[name, box], index)
        for (name, box), index in holders.items()
    ]


def _renamed(tree: Any, names: Sequence[str]) -> Any:
    """Return a tree with the names of its tensors instead of their numbers."""
    if type(tree) is list:
        return [_renamed(item, names) for item in tree]
    if type(tree) is not dict:
        return tree
    return {key: names[value] if key in LEAVES else _renamed(value, names) for key, value in tree.items()}


def _merged(trees: Sequence[Any]) -> Any:
    """Return one tree of the ranks' trees. Where they differ, it holds the values of all ranks."""
    if all(_is_same(tree, trees[0]) for tree in trees):
        return trees[0]
    types = {type(tree) for tree in trees}
    if types == {list} and len(set(map(len, trees))) == 1:
        return [_merged(items) for items in zip(*trees)]
    return _merged_objects(trees) if types == {dict} else {"ranks": list(trees)}


def _merged_objects(trees: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge tuples of one length, and dicts with the same keys, item by item."""
    example, type_name = trees[0], next(iter(trees[0]))
    if len({tuple(tree) for tree in trees}) > 1:
        return {"ranks": list(trees)}
    contents = [tree[type_name] for tree in trees]
    if type_name == "tuple" and len(set(map(len, contents))) == 1:
        return {"tuple": _merged(contents)}
    if type_name not in MAPPINGS or not _have_same_keys(trees, type_name):
        return {"ranks": list(trees)}
    values = zip(*[[pair[1] for pair in content] for content in contents])
    pairs = [[pair[0], _merged(of_key)] for pair, of_key in zip(contents[0], values)]
    return {**example, type_name: pairs}


def _have_same_keys(trees: Sequence[dict[str, Any]], type_name: str) -> bool:
    """Whether dicts differ in their values only."""

    def facts(tree: dict[str, Any]) -> list[Any]:
        rest = [content for key, content in tree.items() if key != type_name]
        return [[pair[0] for pair in tree[type_name]], rest]

    return all(_is_same(facts(tree), facts(trees[0])) for tree in trees)


def _is_same_object(a: Description, b: Description) -> bool:
    return a.tensors == b.tensors and _is_same(a.tree, b.tree)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two trees are equal, with 1, 1.0 and True as different values, and -0.0 and 0.0, too."""
    if a is b or type(a) is not type(b):
        return a is b
    if type(a) is list:
        return len(a) == len(b) and all(map(_is_same, a, b))
    if type(a) is dict:
        return list(a) == list(b) and all(_is_same(a[k], b[k]) for k in a)
    return bool(repr(a) == repr(b)) if type(a) is float else bool(a == b)
