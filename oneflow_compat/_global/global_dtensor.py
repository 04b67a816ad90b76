"""The class of global tensors of several ranks: a wrapper of torch's DTensor.

It adds to DTensor what OneFlow's global tensors have:

- Every operator works; an operator that DTensor cannot shard runs on the full tensor.
- A value read from a tensor is that of the full tensor on every rank.
- Tensors move between placements.

Every rank of the world makes the same calls, as in OneFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate
from torch.distributed.tensor.placement_types import Placement as TorchPlacement
from torch.utils import _pytree as pytree

from .. import sbp
from .._active import capturing
from . import creation, zero
from .call_log import recorded
from .failures import transfer
from .global_mode import outside_mode
from .marks import checked_sbp
from .mesh import broadcast_from, is_member, mesh_of, placement_of_mesh, sbp_of, summed, to_torch
from .placement import placement as Placement
from .reading import ReadableTensor, full_tensor
from .rules import views
from .shards import local_as_dtensor, redistributed_shard, shard_of, strides_in_order_of
from .stage_routes import is_between_stages
from .stage_transfers import moved_shard

SBP = Sequence[sbp.sbp]


@dataclass(frozen=True)
class Gathering:
    """How an operator gets the values of a stored shard: it gathers the base, and applies the views.

    The base is the tensor itself if None.
    """

    base: GlobalDTensor | None = None
    views: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()


class GlobalDTensor(ReadableTensor, torch.Tensor):
    """A wrapper of a DTensor that every operator accepts and whose values are those of the full tensor.

    It is not a subclass of DTensor, because torch 2.11 calls DTensor's C++ code for subclasses and skips
    __torch_dispatch__.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    new_empty, new_zeros, new_ones, new_full, new_tensor = creation.methods(
        lambda full, placement, nd_sbp: from_full(full, placement, checked_sbp(nd_sbp, placement, full.dim()))
    )
    # computes an operator on global tensors: rules.operators.call, which dtensor.py sets
    run_operator: ClassVar[Callable[[Any, tuple[Any, ...], dict[Any, Any]], Any]]
    _own: DTensor
    _origin: views.Origin | None
    _gathering: Gathering | None = None  # None: operators do not gather the shard (stored_shards.py)
    _is_param: bool  # torch.nn.Parameter marks parameters of other classes in this way

    @staticmethod
    def __new__(cls: type[GlobalDTensor], dtensor: DTensor, requires_grad: bool = False) -> GlobalDTensor:
        tensor: GlobalDTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            dtensor.shape,
            strides=dtensor.stride(),
            dtype=dtensor.dtype,
            device=dtensor.device,
            requires_grad=requires_grad,
        )
        tensor._dtensor = dtensor
        return tensor

    @property
    def _dtensor(self) -> DTensor:
        """The DTensor."""
        if self._origin is not None:
            views.refresh(self)
        return self._own

    @_dtensor.setter
    def _dtensor(self, dtensor: DTensor) -> None:
        self._own, self._origin = dtensor, None

    @property
    def device_mesh(self) -> DeviceMesh:
        return self._own.device_mesh

    @property
    def placements(self) -> tuple[TorchPlacement, ...]:
        """torch's placements."""
        return self._own.placements

    @property
    def _local_tensor(self) -> torch.Tensor:
        return self._dtensor._local_tensor

    @property
    def _of_placement(self) -> Placement:
        return placement_of_mesh[self.device_mesh]

    @property
    def _of_sbp(self) -> tuple[sbp.sbp, ...]:
        return sbp_of(self.placements)

    @classmethod
    def around(cls, local: torch.Tensor, like: GlobalDTensor) -> GlobalDTensor:
        """Return a tensor with the spec of `like` whose shard on this rank is `local`."""
        return cls(DTensor(local, like._dtensor._spec, requires_grad=False), like.requires_grad)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares a function
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return cls.run_operator(func, args, kwargs or {})

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, GlobalDTensor):
            value = to_local(moved(value, self._of_placement, (sbp.broadcast,) * self.device_mesh.ndim))
        self._write(lambda local: local.__setitem__(map_tensors(full_tensor, index), value))

    def fill_diagonal_(self, value: complex, wrap: bool = False) -> GlobalDTensor:
        self._write(lambda local: local.fill_diagonal_(value, wrap))
        return self

    def _write(self, write: Callable[[torch.Tensor], Any]) -> None:
        """Apply writes through views to the full tensor; DTensor would drop them."""
        replicated = moved(self, self._of_placement, (sbp.broadcast,) * self.device_mesh.ndim)
        local = to_local(replicated).clone()
        if is_member(self.device_mesh):
            write(local)
        self.copy_(from_local_of_shape(local, self._of_placement, replicated._of_sbp, tuple(self.shape)))

    @property
    def data(self) -> Any:
        """Tensor.data; an assignment replaces the wrapped DTensor."""
        return _descriptor("data").__get__(self)

    @data.setter
    def data(self, value: Any) -> None:
        _descriptor("data").__set__(self, value)
        if not capturing():  # a capture copies the values
            self._dtensor = value._dtensor

    @property
    def grad(self) -> Any:
        """The gradient, with the tensor's own sbp."""
        grad = _descriptor("grad").__get__(self)
        if grad is not None and not isinstance(grad, GlobalDTensor):  # zeros that a formula made
            grad = replicate(grad, self.device_mesh)
            _descriptor("grad").__set__(self, grad)
        if (
            isinstance(grad, GlobalDTensor)
            and grad._of_sbp != zero.sharded_sbp(self)
            and not grad.requires_grad
        ):
            with transfer("Tensor.grad"):
                grad = redistribute(grad, self._of_placement, zero.sharded_sbp(self))
            _descriptor("grad").__set__(self, grad)
        return grad

    @grad.setter
    def grad(self, value: Any) -> None:
        _descriptor("grad").__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        _descriptor("grad").__delete__(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (
            self._local_tensor,
            tuple(self.shape),
            self._of_placement,
            self._of_sbp,
            self.requires_grad,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> GlobalDTensor:
        copy = wrap_shard(self._local_tensor.clone(), self.device_mesh, self.placements, self.shape)
        copy.requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copy._is_param = True
            copy._gathering = self._gathering
        memo[id(self)] = copy
        return copy


def _descriptor(name: str) -> Any:
    """Return the descriptor of an attribute of torch.Tensor, which a capture may have replaced."""
    return getattr(torch.Tensor, name)


def map_tensors(function: Callable[[GlobalDTensor], Any], tree: Any) -> Any:
    """Apply a function to the global tensors of a nested structure."""
    return pytree.tree_map_only(GlobalDTensor, function, tree)


@outside_mode
def wrap_shard(
    local: torch.Tensor, mesh: DeviceMesh, targets: Sequence[TorchPlacement], shape: Sequence[int]
) -> GlobalDTensor:
    """Return the global tensor with this shard, with strides in the memory order of the shard."""
    local = local.resolve_conj().resolve_neg()
    strides = strides_in_order_of(local, shape)
    with torch.no_grad():
        return GlobalDTensor(local_as_dtensor(local, mesh, targets, torch.Size(shape), strides))


def from_shard(local: torch.Tensor, placement: Placement, nd_sbp: SBP, shape: Sequence[int]) -> GlobalDTensor:
    """Return the global tensor whose shard on this rank is `local`, without communication."""
    return wrap_shard(local, mesh_of(placement), to_torch(nd_sbp), shape)


def from_full(full: torch.Tensor, placement: Placement, nd_sbp: SBP) -> GlobalDTensor:
    """Return the global tensor with the values of a tensor that every rank has."""
    return _of_full(full, placement, nd_sbp)


@recorded("to_global of a value")
def _of_full(full: torch.Tensor, placement: Placement, nd_sbp: SBP) -> GlobalDTensor:
    mesh, targets = mesh_of(placement), to_torch(nd_sbp)
    return wrap_shard(shard_of(full.detach(), mesh, targets), mesh, targets, full.shape)


def replicate(tensor: torch.Tensor, mesh: DeviceMesh) -> GlobalDTensor:
    """Return the replicated global tensor of a tensor that every rank has."""
    replicas = [Replicate()] * mesh.ndim
    return wrap_shard(shard_of(tensor, mesh, replicas), mesh, replicas, tensor.shape)


# --------------------------------------------------------------------------- moving
@outside_mode
@recorded("to_global")
def redistribute(tensor: GlobalDTensor, placement: Placement, nd_sbp: SBP) -> GlobalDTensor:
    """Return the tensor on another placement or with another SBP, outside of autograd."""
    mesh, targets = mesh_of(placement), to_torch(nd_sbp)
    if tensor.device_mesh != mesh and is_between_stages():
        with torch.no_grad():
            return wrap_shard(moved_shard(tensor._dtensor, mesh, targets), mesh, targets, tensor.shape)
    if tensor.device_mesh != mesh:
        return from_full(full_tensor(tensor), placement, nd_sbp)
    if list(tensor.placements) == targets:
        return GlobalDTensor(tensor._dtensor)
    with transfer("to_global"):
        shard = redistributed_shard(tensor._dtensor, targets)
    return wrap_shard(shard, mesh, targets, tensor.shape)


class _Move(torch.autograd.Function):
    """redistribute(), whose gradient goes back to the placement and the SBP of the source."""

    @staticmethod
    def forward(
        ctx: Any, tensor: GlobalDTensor, placement: Placement, nd_sbp: SBP, grad_sbp: SBP | None
    ) -> GlobalDTensor:
        ctx.source, ctx.grad = (
            (tensor._of_placement, summed(tensor._of_sbp)),
            grad_sbp and (placement, grad_sbp),
        )
        return redistribute(tensor, placement, nd_sbp)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        with transfer("the gradient of to_global"):
            if ctx.grad:
                grad = redistribute(grad, *ctx.grad)
            return redistribute(grad, *ctx.source), None, None, None


def moved(
    tensor: GlobalDTensor, placement: Placement, nd_sbp: SBP, grad_sbp: SBP | None = None
) -> GlobalDTensor:
    """Move a global tensor to another placement or sbp; its gradient takes the sbp `grad_sbp` first."""
    grad_sbp = grad_sbp and tuple(grad_sbp)
    out: GlobalDTensor = _Move.apply(  # type: ignore[no-untyped-call]
        tensor, placement, tuple(nd_sbp), grad_sbp
    )
    return out


class _FromLocal(torch.autograd.Function):
    """A global tensor of the ranks' shards. Under broadcast, only the first rank gets the gradient."""

    @staticmethod
    def forward(
        ctx: Any, local: torch.Tensor, placement: Placement, nd_sbp: SBP, shape: Sequence[int]
    ) -> GlobalDTensor:
        mesh, targets = mesh_of(placement), to_torch(nd_sbp)
        coordinate = mesh.get_coordinate()
        ctx.target, ctx.shape = (placement, summed(nd_sbp)), local.shape
        ctx.copies = coordinate is not None and any(
            index and r._kind == "broadcast" for index, r in zip(coordinate, nd_sbp)
        )
        if coordinate is None:
            local = torch.empty((0,) * len(shape), dtype=local.dtype, device=local.device)
        else:
            local = local.detach().contiguous()
            replicated = [i for i, r in enumerate(nd_sbp) if r._kind == "broadcast" and mesh.shape[i] > 1]
            for i in replicated:  # the first rank's values become those of all ranks
                group = mesh.get_group(i)
                local = broadcast_from(local, dist.get_global_rank(group, 0), group)
        return wrap_shard(local, mesh, targets, shape)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if not is_member(grad.device_mesh):
            return torch.zeros(ctx.shape, dtype=grad.dtype), None, None, None
        with transfer("the gradient of to_global"):
            local = redistribute(grad, *ctx.target)._local_tensor
        return torch.zeros_like(local) if ctx.copies else local, None, None, None


@recorded("to_global", skipped=1)
def from_local_of_shape(
    local: torch.Tensor, placement: Placement, nd_sbp: SBP, shape: Sequence[int]
) -> GlobalDTensor:
    """Return the global tensor of this shape whose shard on this rank is `local`."""
    mesh_of(placement)
    if local.device.type != placement.type:
        local = local.to(placement.type)
    with transfer("to_global"):
        out: GlobalDTensor = _FromLocal.apply(  # type: ignore[no-untyped-call]
            local, placement, tuple(nd_sbp), tuple(shape)
        )
    return out


class _ToLocal(torch.autograd.Function):
    """The shard of this rank. Its gradient is a shard, or a summand of the gradient under broadcast."""

    @staticmethod
    def forward(ctx: Any, tensor: GlobalDTensor) -> torch.Tensor:
        ctx.source, ctx.shape = (tensor.device_mesh, tensor.placements), tensor.shape
        local = tensor._local_tensor
        if is_member(tensor.device_mesh):
            return local.view_as(local)
        return local.new_zeros((0,) * len(ctx.shape))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        mesh, placements = ctx.source
        grad = grad if is_member(mesh) else grad.new_empty(0)
        swapped = [
            Partial() if isinstance(p, Replicate) else Replicate() if isinstance(p, Partial) else p
            for p in placements
        ]
        return wrap_shard(grad.contiguous(), mesh, swapped, ctx.shape)


@recorded("to_local")
def to_local(tensor: GlobalDTensor) -> torch.Tensor:
    """Return this rank's shard; under broadcast, the gradients of the ranks add up.

    On a rank without data, all sizes are 0; a tensor without dimensions is 0.0.
    """
    local: torch.Tensor = _ToLocal.apply(tensor)  # type: ignore[no-untyped-call]
    return local


def _rebuild(
    local: torch.Tensor, shape: Sequence[int], placement: Placement, nd_sbp: SBP, requires_grad: bool
) -> GlobalDTensor:
    tensor = from_shard(local, placement, nd_sbp, shape)
    tensor.requires_grad_(requires_grad)
    return tensor


_rebuild.__module__ = "oneflow._global.dtensor"  # a pickle names the module that also loads the operators
