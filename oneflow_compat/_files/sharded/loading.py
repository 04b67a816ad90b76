"""Load a sharded checkpoint on any number of ranks. Each rank reads the bytes of its own shards.

Everything about the checkpoint is checked before the first value is written into a tensor of the caller.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ... import _processes
from ..._file_safety.errors import CheckpointError, named_errors
from ..._file_safety.shown import shown
from ..._global.collectives import checking
from ..._global.marks import several
from ..._global.placement import placement as Placement
from ..._global.tensor import make_global, make_mesh, of_several_ranks
from ...sbp import broadcast
from .boxes import Box
from .index import Chunk, TensorEntry
from .tensors import Spread, local_values, spread_of
from .tree_reading import Decoder
from .trees import Path, path_name


class Source(Protocol):
    """A checkpoint whose tensors are in chunks."""

    tensors: Mapping[str, TensorEntry]
    tree: Any
    ranks: int  # the number of ranks that saved the file
    size: int  # bytes of its index
    digest: int  # digest of the index

    def check(self, share: int, shares: int, check_crc: bool) -> None:
        """Check every `shares`-th file: that it has the values that the index names, and their checksums."""

    def read(self, name: str, chunk: Chunk, box: Box, out: torch.Tensor, check_crc: bool) -> None:
        """Copy a part of a chunk to a tensor."""


@dataclass(frozen=True)
class Request:
    """What the caller of a load asked for."""

    into: Any = None
    placement: Placement | None = None  # all tensors become global on it
    is_plain: bool = False  # full ordinary tensors, and no communication
    check_crc: bool = True

    @property
    def is_collective(self) -> bool:
        """Whether all ranks load together."""
        return several() and not self.is_plain


def load(open_source: Callable[[], AbstractContextManager[Source]], folder: str, request: Request) -> Any:
    """Return the object of a checkpoint. If the ranks load together, every rank raises, or none."""
    rank, into = _processes.get_rank(), request.into
    if not request.is_collective:
        with open_source() as source, named_errors(folder):
            targets = _matched(source, into, rank)
            source.check(0, 1, request.check_crc and into is not None)
            return _Loader(source, request, targets, request.check_crc and into is None).load()
    with contextlib.ExitStack() as stack:
        with checking("load", sends=True) as call:
            source = stack.enter_context(open_source())
            call.must_match(index=source.digest, into=into is not None, placement=request.placement)
            with named_errors(folder):
                targets = _matched(source, into, rank)
            loader = _Loader(source, request, targets, False)
        loader.make_meshes()
        with checking("load"), named_errors(folder):
            source.check(rank, _processes.get_world_size(), request.check_crc)
        with checking("load"), named_errors(folder):
            return loader.load()


class _Loader:
    """Read the tensors of a checkpoint."""

    def __init__(self, source: Source, request: Request, targets: dict[Path, Any], check_crc: bool) -> None:
        self._source, self._request, self._targets, self._check_crc = source, request, targets, check_crc
        self._rank = _processes.get_rank()
        self._filled: set[int] = set()
        self._plain: dict[str, torch.Tensor] = {}  # full ordinary tensors that were read
        self._global: dict[str, torch.Tensor] = {}
        self._spreads: dict[str, Spread] = {}  # placements of the tensors that become global
        if request.is_collective:
            self._spreads = _spreads(source, request.placement, request.into is not None)

    def make_meshes(self) -> None:
        """Make the process groups of the placements, in the same order on all ranks."""
        placements = {spread.placement: None for spread in self._spreads.values()}
        if self._request.placement is not None:
            placements[self._request.placement] = None
        for placement in placements:
            make_mesh(placement)

    def load(self) -> Any:
        """Return the object with its tensors."""
        source = self._source
        targets = {id(tensor) for tensor in self._targets.values()}
        decoder = Decoder(self._tensor, self._rank, source.ranks, source.size, targets)
        with torch.no_grad():
            return decoder.decode(source.tree)

    def _tensor(self, name: str, path: Path, is_plain: bool) -> torch.Tensor:
        target = self._targets.get(_text(path))
        if target is not None:
            if id(target) not in self._filled:
                self._fill_target(name, target)
                self._filled.add(id(target))
            return target
        placement = self._request.placement if self._request.is_collective else None
        if is_plain or name not in self._spreads and placement is None:
            return self._full(name)
        if name not in self._global:
            self._global[name] = self._new_global(name)
        return self._global[name]

    def _fill_target(self, name: str, target: torch.Tensor) -> None:
        values, spread = local_values(target), spread_of(target)
        shape = entry_of(self._source, name).shape
        box = Box.full(shape) if spread is None else spread.box_of(shape, self._rank)
        if spread is not None and spread.is_zero_on(self._rank):
            values.zero_()
        elif box is not None:
            self._fill(name, box, values)
        torch.autograd.graph.increment_version(target)

    def _new_global(self, name: str) -> torch.Tensor:
        if name in self._spreads:
            return self._shard(name, entry_of(self._source, name), self._spreads[name])
        placement = self._request.placement
        assert placement is not None
        return make_global(self._full(name), placement, (broadcast,) * placement.ranks.ndim, is_full=True)

    def _full(self, name: str) -> torch.Tensor:
        """Return the full tensor as an ordinary one."""
        if name not in self._plain:
            entry = entry_of(self._source, name)
            if entry.view is not None:
                base = self._full(entry.view.base).reshape(-1)
                values = base.as_strided(entry.shape, entry.view.strides, entry.view.offset)
            else:
                values = torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
                self._fill(name, Box.full(entry.shape), values)
            self._plain[name] = values
        return self._plain[name]

    def _shard(self, name: str, entry: TensorEntry, spread: Spread) -> torch.Tensor:
        """Return a global tensor, of which this rank reads its shard."""
        box = spread.box_of(entry.shape, self._rank)
        sizes = (0,) * len(entry.shape) if box is None else box.sizes
        values = torch.empty(sizes, dtype=entry.dtype, device=device_of(spread.placement))
        if box is not None:
            self._fill(name, box, values)
        out: torch.Tensor = of_several_ranks().from_shard(
            values, spread.placement, spread.nd_sbp, entry.shape
        )
        return out

    def _fill(self, name: str, box: Box, values: torch.Tensor) -> None:
        """Copy a part of a tensor from all chunks that overlap it."""
        entry = entry_of(self._source, name)
        if entry.view is not None:
            values.copy_(self._full(name))
            return
        for chunk in entry.chunks:
            overlap = chunk.box.overlap(box)
            if overlap is not None:
                out = values[overlap.inside(box).slices()]
                self._source.read(name, chunk, overlap.inside(chunk.box), out, self._check_crc)


def device_of(placement: Placement) -> torch.device:
    """Return the device of this rank's values on a placement."""
    if placement.type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(placement.type)


def _spreads(source: Source, placement: Placement | None, has_targets: bool) -> dict[str, Spread]:
    """Return the placement and the SBP of each tensor that becomes global: those of the save, if they fit."""
    spreads = {}
    for name, entry in source.tensors.items():
        if entry.spread is None:
            continue
        if placement is not None:
            spreads[name] = _on(placement, entry.spread)
            continue
        spread = _fitting(entry.spread, source.ranks)
        if spread is not None:
            spreads[name] = spread
        elif not has_targets:
            raise ValueError(
                f"load: {shown(name)} was saved on ranks {shown(entry.spread.placement.ranks.tolist())} of"
                f" {source.ranks}; there are {_processes.get_world_size()} ranks now. Pass"
                " map_location=flow.placement(...), or into= with tensors on their placements"
            )
    return spreads


def _on(placement: Placement, saved: Spread) -> Spread:
    """Return the saved SBP on another placement, or broadcast if they do not fit."""
    dims = placement.ranks.ndim
    fits = len(saved.nd_sbp) == dims
    return Spread(placement, saved.nd_sbp if fits else (broadcast,) * dims)


def _fitting(saved: Spread, ranks: int) -> Spread | None:
    """Return the saved placement and SBP for the ranks and devices of this program, or None."""
    world, placement = _processes.get_world_size(), saved.placement
    has_device = placement.type != "cuda" or torch.cuda.is_available()
    device_type = placement.type if has_device else "cpu"
    if ranks == world:
        return Spread(Placement(device_type, placement.ranks.tolist()), saved.nd_sbp)
    if placement.ranks.shape == (ranks,):
        return Spread(Placement(device_type, list(range(world))), saved.nd_sbp)
    return None


# --------------------------------------------------------------------------- tensors of the caller
def _matched(source: Source, into: Any, rank: int) -> dict[Path, torch.Tensor]:
    """Return the tensors of `into` by their paths. ValueError if the checkpoint has no tensor like one."""
    saved = _saved_paths(source, rank)
    targets = dict(_tensors(into))
    problems = []
    for path, tensor in targets.items():
        entry = saved.get(path)
        own = tuple(tensor.shape), tensor.dtype
        if entry is None:
            problems.append(f"{shown(path_name(path))} is not in the checkpoint")
        elif own != (entry.shape, entry.dtype):
            problems.append(
                f"{shown(path_name(path))} is {own[0]} of {own[1]} here and {shown(entry.shape)} of"
                f" {entry.dtype} in the checkpoint"
            )
        elif getattr(tensor, "_origin", None) is not None or tensor.device.type == "meta":
            problems.append(f"{shown(path_name(path))} is a copied view of a global tensor, or has no values")
    if problems:
        rest = f"; {len(problems) - 5} more" if len(problems) > 5 else ""
        error = ValueError(
            f"load: the tensors of `into` do not fit: {'; '.join(problems[:5])}{rest}. Nothing was changed"
        )
        error.of_the_caller = True  # type: ignore[attr-defined]  # named_errors() leaves it as it is
        raise error
    return targets


def _saved_paths(source: Source, rank: int) -> dict[Path, TensorEntry]:
    """Return the tensors of the object by their paths. This decodes the object, and so checks it."""
    saved: dict[Path, TensorEntry] = {}

    def note(name: str, path: Path, is_plain: bool) -> torch.Tensor:
        saved[_text(path)] = entry = entry_of(source, name)
        return torch.empty(0, dtype=entry.dtype, device="cpu")

    decoder = Decoder(note, rank, source.ranks, source.size)
    decoder.warned = True
    decoder.decode(source.tree)
    return saved


def entry_of(source: Source, name: str) -> TensorEntry:
    """Return the tensor of a name that the object of a file holds."""
    if name not in source.tensors:
        raise CheckpointError(f"altered: its object holds {shown(name)}, which is none of its tensors")
    return source.tensors[name]


def _tensors(value: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield (path, tensor) of the tensors in dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield _text(path), value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, (*path, key))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _tensors(item, (*path, position))


def _text(path: Path) -> Path:
    """Return a path with its keys as text: torch's checkpoints have no other keys."""
    return tuple(map(str, path))
