"""Reads of global tensors of several ranks: every rank gets the values of the full tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .collectives import checking
from .failures import transfer
from .global_mode import outside_mode
from .marks import OfSeveralRanks
from .mesh import broadcast_from, first_rank, group_of_mesh, is_member

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


class ReadableTensor(OfSeveralRanks):
    """The methods of a global tensor that read its values. The class `GlobalDTensor` holds the shard."""

    if TYPE_CHECKING:

        @property
        def _dtensor(self) -> DTensor: ...

    def full_tensor(self) -> torch.Tensor:
        """Return the full tensor as an ordinary tensor, as DTensor.full_tensor does."""
        return read(self, "Tensor.full_tensor")

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return read(self, "Tensor.numpy").numpy(*args, **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return read(self, "Tensor.numpy").__array__(*args, **kwargs)

    def tolist(self) -> Any:
        return read(self, "Tensor.tolist").tolist()

    def __format__(self, format_spec: str) -> str:
        if self.dim():
            return object.__format__(self, format_spec)
        return format(read(self, "Tensor.__format__"), format_spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # untyped in torch
        extra = f"placement={self._of_placement!r}, sbp={self._of_sbp!r}" + (
            ", requires_grad=True" if self.requires_grad else ""
        )
        return f"{repr(read(self, 'the text of a tensor'))[:-1]}, {extra})"


@outside_mode
def full_tensor(tensor: ReadableTensor) -> torch.Tensor:
    """Return the full tensor as a plain tensor on every rank of the world."""
    mesh = tensor.device_mesh
    world: Any = dist.group.WORLD
    full: torch.Tensor
    with torch.no_grad(), transfer("Tensor.full_tensor"):
        if is_member(mesh):
            full = tensor._dtensor.full_tensor()
        else:
            full = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor._local_tensor.device)
        if group_of_mesh[mesh] is not world:
            full = broadcast_from(full, first_rank(mesh), world)
    return full


def read(tensor: ReadableTensor, call: str) -> torch.Tensor:
    """Return the full tensor for a read by the program. The ranks agree first that all of them read it."""
    with checking(call) as request:
        request.must_match(**about(tensor))
    with transfer(call):
        return full_tensor(tensor)


def about(tensor: ReadableTensor) -> dict[str, Any]:
    """Return the attributes of a global tensor that must be the same on every rank."""
    return {
        "shape": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "placement": tensor._of_placement,
        "sbp": tensor._of_sbp,
    }
