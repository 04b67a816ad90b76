"""What a tensor holds on this rank: its local values, and its placement and SBP if it is global."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ... import _processes
from ..._global.marks import OfSeveralRanks, is_global
from ..._global.placement import placement as Placement
from ..._global.tensor import to_local
from ...sbp import partial_sum
from ...sbp import sbp as Sbp
from .boxes import Box, shard_box


@dataclass(frozen=True)
class Spread:
    """The placement and the SBP of a global tensor."""

    placement: Placement
    nd_sbp: tuple[Sbp, ...]

    def coordinate_of(self, rank: int) -> tuple[int, ...] | None:
        """Return the coordinate of a rank in the grid, or None if the rank has no data."""
        position = np.argwhere(self.placement.ranks == rank)
        return tuple(map(int, position[0])) if len(position) else None

    def box_of(self, shape: tuple[int, ...], rank: int) -> Box | None:
        """Return the part of a tensor of this shape that a rank has, or None."""
        at = self.coordinate_of(rank)
        return None if at is None else shard_box(shape, self.placement.ranks.shape, self.nd_sbp, at)

    def is_zero_on(self, rank: int) -> bool:
        """Whether a rank has zeros, because another summand of a partial sum has the values."""
        at = self.coordinate_of(rank)
        return at is not None and any(i and rule == partial_sum for i, rule in zip(at, self.nd_sbp))

    def holders(self, shape: tuple[int, ...]) -> dict[Box, list[int]]:
        """Return the ranks that have each box of a tensor without partial sums. Empty boxes are left out."""
        ranks_of: dict[Box, list[int]] = {}
        for rank in self.placement.ranks.ravel().tolist():
            box = self.box_of(shape, rank)
            if box is not None and box.count:
                ranks_of.setdefault(box, []).append(rank)
        return ranks_of


def spread_of(tensor: torch.Tensor) -> Spread | None:
    """Return the placement and the SBP of a global tensor or a DTensor of torch, and None for others."""
    if is_global(tensor):
        return Spread(tensor._of_placement, tuple(tensor._of_sbp))
    if not is_dtensor(tensor):
        return None
    from torch.distributed.tensor import Partial, Replicate, Shard  # import cost: half a second

    from ..._global.mesh import sbp_of

    allowed: Any = (Shard, Replicate, Partial)
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    placements: Any = tensor.placements  # type: ignore[attr-defined]
    if any(type(p) not in allowed for p in placements):
        raise NotImplementedError(
            f"layout='sharded' saves DTensors with the placements Shard, Replicate and Partial, found"
            f" {placements}; redistribute the tensor first"
        )
    spread = Spread(Placement(mesh.device_type, mesh.mesh.tolist()), sbp_of(placements))
    if spread.placement.ranks.tolist() != mesh.mesh.tolist():
        raise NotImplementedError(
            f"layout='sharded' saves DTensors whose mesh has its ranks in ascending order, found"
            f" {mesh.mesh.tolist()}; redistribute the tensor first"
        )
    return spread


def is_dtensor(tensor: torch.Tensor) -> bool:
    """Whether this is a DTensor of torch that is no global tensor."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements") and not is_global(tensor)


def local_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of this rank as an ordinary tensor that shares the memory of `tensor`."""
    with torch.no_grad():
        if isinstance(tensor, OfSeveralRanks) or is_dtensor(tensor):
            local: torch.Tensor = tensor._local_tensor  # type: ignore[attr-defined, union-attr]
        else:
            local = to_local(tensor) if is_global(tensor) else tensor
        return local.detach().as_subclass(torch.Tensor)


def fits_rank(spread: Spread) -> bool:
    """Whether this rank has data of a global tensor."""
    return spread.coordinate_of(_processes.get_rank()) is not None


BLOCK = 16 << 20  # bytes that are copied at a time


def blocks(values: torch.Tensor) -> Iterator[memoryview]:
    """Yield the bytes of an ordinary tensor in row-major order.

    A contiguous tensor on the CPU is not copied. Others are copied in parts of at most 16 MiB.
    """
    if not values.numel():
        return
    if is_plain_memory(values):
        data = bytes_of(values)
        for begin in range(0, len(data), BLOCK):
            yield data[begin : begin + BLOCK]
    elif values.nbytes <= BLOCK or not values.dim():
        yield bytes_of(values.resolve_conj().resolve_neg().cpu().contiguous())
    else:
        rows = max(1, BLOCK * values.shape[0] // values.nbytes)
        for part in values.split(rows):
            if len(part) > 1 or part.nbytes <= BLOCK:
                yield bytes_of(part.resolve_conj().resolve_neg().cpu().contiguous())
            else:
                yield from blocks(part[0])


def is_plain_memory(values: torch.Tensor) -> bool:
    """Whether the memory of an ordinary tensor has its values in row-major order."""
    is_exact = not values.is_conj() and not values.is_neg()
    return values.device.type == "cpu" and values.is_contiguous() and is_exact


def bytes_of(values: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU."""
    array: Any = values.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)
