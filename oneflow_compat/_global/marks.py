"""The marks of global tensors: their base classes, their placement and SBP, and the checks of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from .. import _processes
from ..sbp import sbp as Sbp
from .placement import placement as Placement

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    class _GlobalMembers(torch.Tensor):
        """A tensor with what _tables/tensor.py adds to torch.Tensor: each class of global tensors is one."""

        placement: Placement
        sbp: tuple[Sbp, ...]

        def to_global(self, *args: Any, **kwargs: Any) -> Any: ...
        def to_local(self, **kwargs: Any) -> torch.Tensor: ...

else:
    _GlobalMembers = object


class Global(_GlobalMembers):
    """Base of the classes of global tensors."""

    if TYPE_CHECKING:  # attributes of GlobalTensor, properties of GlobalDTensor

        @property
        def _of_placement(self) -> Placement: ...

        @property
        def _of_sbp(self) -> tuple[Sbp, ...]: ...


class OfSeveralRanks(Global):
    """Base of the global tensors of several ranks."""

    if TYPE_CHECKING:  # members of GlobalDTensor
        _origin: Any

        @property
        def _local_tensor(self) -> torch.Tensor: ...

        @property
        def device_mesh(self) -> DeviceMesh: ...

        @classmethod
        def around(cls, local: torch.Tensor, like: Any) -> Any: ...


def mark(tensor: torch.Tensor, placement: Placement, nd_sbp: tuple[Sbp, ...]) -> torch.Tensor:
    """Set the placement and the SBP of a tensor, and return the tensor."""
    tensor._of_placement, tensor._of_sbp = placement, nd_sbp  # type: ignore[attr-defined]
    return tensor


def is_global(self: torch.Tensor) -> TypeGuard[Global]:
    """Return True for a tensor with a placement."""
    return isinstance(self, Global) or "_of_placement" in self.__dict__


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Whether this is a fake tensor of a graph under capture.

    It cannot change its class, so the attributes alone make it global.
    """
    return type(tensor).__name__ == "FakeTensor"


def several() -> bool:
    """Whether there are several ranks."""
    return _processes.get_world_size() > 1


def check_ranks(placement: Placement) -> None:
    """Raise RuntimeError if a placement needs more ranks than the only one."""
    if placement.ranks.size > 1 or placement.ranks.ravel()[0] != 0:
        raise RuntimeError(
            f"a global tensor on the ranks {placement.ranks.tolist()}: there is one process, rank 0; "
            "start several with `python -m oneflow.distributed.launch --nproc_per_node N program.py`"
        )


def checked_sbp(nd_sbp: Any, placement: Placement, ndim: int) -> tuple[Sbp, ...]:
    """Return the SBP as a tuple. Raise an error if it does not fit the placement and the dimensions."""
    if isinstance(nd_sbp, Sbp):
        nd_sbp = (nd_sbp,)
    if not isinstance(nd_sbp, (tuple, list)) or not all(isinstance(r, Sbp) for r in nd_sbp):
        raise TypeError(
            "sbp must be one SBP or a list of them (oneflow.sbp.split(0), broadcast, partial_sum), found"
            f" {nd_sbp!r}"
        )
    if len(nd_sbp) != len(placement.hierarchy):
        raise RuntimeError(
            f"{len(nd_sbp)} SBP for a placement of {len(placement.hierarchy)} dimensions; give one for each"
            " dimension"
        )
    for r in nd_sbp:
        if r._kind == "split" and r._dim >= (ndim if several() else max(ndim, 1)):
            raise RuntimeError(f"{r!r} of a tensor of {ndim} dimensions: the dimension does not exist")
    return tuple(nd_sbp)
