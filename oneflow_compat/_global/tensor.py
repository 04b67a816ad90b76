"""Global tensors of one rank, and the methods of all global tensors.

On one rank every sbp holds the full tensor. A global tensor is then the tensor itself plus its placement and
sbp, which `__torch_function__` carries through operations. With several ranks (WORLD_SIZE > 1) it is a
DTensor of `dtensor.py`.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _processes
from .._errors import NoSuchState
from ..sbp import broadcast, partial_sum
from . import creation
from .collectives import Request, checking
from .failures import transfer
from .marks import (
    Global,
    OfSeveralRanks,
    check_ranks,
    checked_sbp,
    is_global,
    is_symbolic,
    mark,
    several,
)
from .placement import placement as Placement
from .placement import require_device
from .views import VIEWS, view_or_copy


class GlobalTensor(Global, torch.Tensor):
    """A torch tensor with a placement and one SBP for each dimension of its rank grid."""

    new_empty, new_zeros, new_ones, new_full, new_tensor = creation.methods(
        lambda full, placement, nd_sbp: make_global(full, placement, nd_sbp, is_full=True)
    )

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.register_hook and is_global(args[0]):
            args, kwargs = _with_global_gradient(*args, **(kwargs or {})), {}
        with torch._C.DisableTorchFunctionSubclass():
            out = (view_or_copy(func) if func in VIEWS else func)(*args, **(kwargs or {}))
        if func in _PLAIN:
            return out
        source = first_global((*args, *(kwargs or {}).values()))
        return mark_results(out, source) if source is not None else out

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (self.to_local().detach(), self._of_placement, self._of_sbp, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            copy = self.detach().clone()
        copy = make_global(copy, self._of_placement, self._of_sbp).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copy._is_param = True
        memo[id(self)] = copy
        return copy

    def __format__(self, format_spec: str) -> str:
        if self.dim():
            return object.__format__(self, format_spec)
        return format(self.to_local().detach(), format_spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # untyped in torch
        values = repr(self.to_local().detach())
        extra = f"placement={self._of_placement!r}, sbp={self._of_sbp!r}" + (
            ", requires_grad=True" if self.requires_grad else ""
        )
        return f"{values[:-1]}, {extra})"


@functools.cache
def of_several_ranks() -> types.ModuleType:
    """Return the module of global tensors of several ranks."""
    from . import dtensor  # torch.distributed.tensor takes half a second to import

    return dtensor


def _plain() -> set[Any]:
    T: Any = torch.Tensor  # torch declares the values of its properties
    return {T.numpy, T.item, T.tolist, T.is_leaf.__get__, T.shape.__get__, T.dtype.__get__, T.device.__get__}


_PLAIN = _plain()


def _with_global_gradient(tensor: Any, hook: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
    """Return the arguments of register_hook for a hook that gets a global gradient."""
    placement, nd_sbp = tensor._of_placement, tensor._of_sbp

    @functools.wraps(hook)
    def call(gradient: torch.Tensor) -> Any:
        return hook(make_global(gradient, placement, nd_sbp))

    return tensor, call


def local_shard(full: torch.Tensor, placement: Placement, nd_sbp: Any) -> torch.Tensor:
    """Return this rank's shard of an ordinary tensor, for to_global.

    On one rank, and outside of the placement, it is the full tensor.
    """
    nd_sbp = checked_sbp(nd_sbp, placement, full.dim())
    if not several() or _processes.get_rank() not in placement.ranks:
        return full
    shard: torch.Tensor = of_several_ranks().shard_of_rank(full, placement, nd_sbp, _processes.get_rank())
    return shard


def first_global(values: Any) -> Any:
    """Return the first global tensor of nested arguments, or None."""
    for v in values:
        if isinstance(v, torch.Tensor) and is_global(v):
            return v
        if isinstance(v, (list, tuple)):
            nested = first_global(v)
            if nested is not None:
                return nested
    return None


def mark_results(out: Any, source: Any) -> Any:
    """Return results with the placement of `source`, and an SBP that fits their dimensions."""
    if isinstance(out, GlobalTensor):
        if not hasattr(out, "_of_placement"):
            mark(out, source._of_placement, _sbp_of_result(out, source))
        return out
    if isinstance(out, torch.Tensor):
        if isinstance(out, torch.nn.Parameter) or hasattr(out, "_of_placement"):
            return out
        if is_symbolic(out):
            return mark(out, source._of_placement, _sbp_of_result(out, source))
        return mark(out.as_subclass(GlobalTensor), source._of_placement, _sbp_of_result(out, source))
    if isinstance(out, tuple) and hasattr(out, "_fields"):
        return type(out)(*(mark_results(o, source) for o in out))
    if type(out) in (list, tuple):
        return type(out)(mark_results(o, source) for o in out)
    if isinstance(out, tuple) and type(out).__module__ == "torch.return_types":
        return type(out)([mark_results(o, source) for o in out])
    return out


def _sbp_of_result(out: torch.Tensor, source: Any) -> tuple[Any, ...]:
    same = out.dim() == source.dim()
    return tuple(
        r if same or r._kind != "split" else (partial_sum if out.dim() < source.dim() else broadcast)
        for r in source._of_sbp
    )


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor as a plain tensor on every rank."""
    if isinstance(tensor, OfSeveralRanks):
        full: torch.Tensor = of_several_ranks().full_tensor(tensor)
        return full
    return to_local(tensor)


def memory_of(tensor: Any) -> Any:
    """Return the ordinary tensor with this rank's data, on which captured programs work."""
    return tensor._local_tensor if isinstance(tensor, OfSeveralRanks) else tensor


def make_global(
    tensor: torch.Tensor,
    placement: Placement,
    nd_sbp: Any,
    is_full: bool = False,
    shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return `tensor` as the global tensor on `placement` with the SBP `nd_sbp`; autograd passes through.

    With several ranks, `tensor` is this rank's shard, or the full tensor if `is_full`. `shape` is the full
    shape; without it, the ranks agree on one.
    """
    nd_sbp = checked_sbp(nd_sbp, placement, tensor.dim())
    if several():
        ranks = of_several_ranks()
        out: torch.Tensor
        if isinstance(tensor, OfSeveralRanks):
            out = ranks.moved(tensor, placement, nd_sbp)
        elif is_full:
            out = ranks.from_full(tensor, placement, nd_sbp)
        else:
            out = ranks.from_local(tensor, placement, nd_sbp, shape)
        return out
    check_ranks(placement)
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.device.type != placement.type:
            require_device(placement.type)
            tensor = tensor.to(f"{placement.type}:0" if placement.type != "cpu" else "cpu")
        if is_symbolic(tensor):
            return mark(torch.ops.aten.alias(tensor), placement, nd_sbp)
        return mark(torch.Tensor.as_subclass(tensor, GlobalTensor), placement, nd_sbp)


def make_mesh(placement: Placement) -> None:
    """Make the process groups of a placement. Every rank makes them, in the same order."""
    of_several_ranks().mesh_of(placement)


def replicated_like(value: torch.Tensor, like: Any) -> torch.Tensor:
    """Return a tensor with the same values on every rank, made global if `like` is."""
    return (
        make_global(value, like.placement, (broadcast,) * len(like.placement.hierarchy), is_full=True)
        if isinstance(like, OfSeveralRanks)
        else value
    )


_NUMBERS = {"step", "mu_product", "mu", "eta"}  # entries of torch's optimizers, for every parameter


def moved_to_placement_of(value: Any, parameter: Any, slot: str) -> Any:
    """Move a value of an optimizer's state to the placement of its parameter, or to its stored shards.

    A number becomes an ordinary tensor on every rank. Values from a file are on the rank that read it.
    """
    if not isinstance(value, OfSeveralRanks) or not is_global(parameter):
        return value
    is_number = not value.dim() and (parameter.dim() or slot in _NUMBERS)
    if is_number and value.placement.ranks.size == 1:
        return full_tensor(value)
    if value.placement == parameter.placement:
        return of_several_ranks().stored_like(value, parameter)
    return value.to_global(
        placement=parameter.placement,
        sbp=parameter.sbp if value.shape == parameter.shape else [broadcast] * len(parameter.sbp),
    )


def _rebuild(local: torch.Tensor, placement: Placement, nd_sbp: Any, requires_grad: bool) -> torch.Tensor:
    return make_global(local, placement, nd_sbp).requires_grad_(requires_grad)


# --------------------------------------------------------------------------- rows of _tables/tensor.py
def is_local(self: Any) -> bool:
    """Return True for an ordinary tensor."""
    return not is_global(self)


def is_consistent(self: Any) -> bool:
    """Return is_global, of which this was the name in OneFlow 0.5 and 0.6."""
    return is_global(self)


def placement(self: Any) -> Placement:
    """The placement of a global tensor; RuntimeError and AttributeError on a local one."""
    if not is_global(self):
        raise NoSuchState(
            "a local tensor has no placement; use .device, or make it global with .to_global(placement, sbp)"
        )
    return self._of_placement


def sbp(self: Any) -> tuple[Any, ...]:
    """The SBP of a global tensor, one for each dimension of its rank grid.

    RuntimeError and AttributeError on a local tensor.
    """
    if not is_global(self):
        raise NoSuchState("a local tensor has no sbp; make it global with .to_global(placement, sbp)")
    return self._of_sbp


def to_global(
    self: Any,
    placement: Placement | None = None,
    sbp: Any = None,
    *,
    grad_sbp: Any = None,
    check_meta: bool | None = None,
    copy: bool = False,
) -> torch.Tensor:
    """Make a local tensor global, or move a global tensor to another placement or sbp.

    A local tensor needs both `placement` and `sbp`. With several ranks, each rank gives its shard. With
    check_meta=False the ranks do not compare shapes; all shards must be as large as this rank's. `grad_sbp`
    is the sbp that the gradient of a moved tensor takes first. Autograd passes through.
    """
    if several():
        return _to_global_of_ranks(self, placement, sbp, grad_sbp, check_meta, copy)
    placement, sbp = _target(self, placement, sbp)
    if grad_sbp:
        checked_sbp(grad_sbp, placement, self.dim())
    local = to_local(self) if is_global(self) else self
    return make_global(local.clone() if copy else local, placement, sbp)


def _to_global_of_ranks(
    self: Any, placement: Any, sbp: Any, grad_sbp: Any, check_meta: bool | None, copy: bool
) -> torch.Tensor:
    """Run to_global with several ranks.

    The ranks agree on the arguments before data is sent, unless check_meta is False.
    """
    ranks, moves = of_several_ranks(), isinstance(self, OfSeveralRanks)
    unchecked = check_meta is False or moves and _is_at_home(self, placement, sbp)
    with (
        contextlib.nullcontext(Request("Tensor.to_global"))
        if unchecked
        else checking("Tensor.to_global", sends=not moves)
    ) as request:
        placement, sbp = _target(self, placement, sbp)
        nd_sbp = checked_sbp(sbp, placement, self.dim())
        grad_sbp = grad_sbp and checked_sbp(grad_sbp, placement, self.dim())
        ranks.check_world(placement)
        if moves:
            request.must_match(
                tensor="global", placement=placement, sbp=nd_sbp, grad_sbp=grad_sbp, source=ranks.about(self)
            )
        else:
            request.must_match(tensor="local", placement=placement, sbp=nd_sbp)
            request.send_integers(*ranks.describe_shard(self))
    out: torch.Tensor
    if moves:
        with transfer("Tensor.to_global"):
            out = ranks.moved(self.clone() if copy else self, placement, nd_sbp, grad_sbp)
        return out
    local: torch.Tensor = self.clone() if copy else self
    if check_meta is False:
        shape = _even_shape(local, placement, nd_sbp)
    else:
        dtype, shape = ranks.agreed_shape(request.integers, placement, nd_sbp)
        if _processes.get_rank() not in placement.ranks:
            local = torch.empty(0, dtype=dtype, requires_grad=local.requires_grad)
    out = ranks.from_local(local, placement, nd_sbp, shape)
    return out


def _is_at_home(self: Any, placement: Placement | None, sbp: Any) -> bool:
    """Whether a move needs no other ranks: the tensor is replicated, or nothing changes."""
    stays = placement is None or placement == self._of_placement
    return stays and (
        all(r._kind == "broadcast" for r in self._of_sbp)
        or sbp is None
        or sbp in (self._of_sbp, *self._of_sbp[:1] * (len(self._of_sbp) == 1))
    )


def _target(self: Any, placement: Any, sbp: Any) -> tuple[Placement, Any]:
    """Return the placement and the sbp that to_global moves to."""
    for name, value in (("placement", placement), ("sbp", sbp)):
        if value is None and not is_global(self):
            raise RuntimeError(
                f"to_global() of a local tensor needs a placement and an sbp, found {name}=None"
            )
    placement = self._of_placement if placement is None else placement
    if not isinstance(placement, Placement):
        raise TypeError(
            f"to_global: placement must be an oneflow.placement, found {type(placement).__name__}"
        )
    return placement, self._of_sbp if sbp is None else sbp


def _even_shape(local: torch.Tensor, placement: Placement, nd_sbp: Any) -> list[int]:
    """Return the full shape if every rank's shard has the shape of this one."""
    shape = list(local.shape)
    for size, s in zip(placement.hierarchy, checked_sbp(nd_sbp, placement, local.dim())):
        if s._kind == "split":
            shape[s._dim] *= size
    return shape


def to_local(self: Any, *, copy: bool = False) -> torch.Tensor:
    """Return the shard of this rank as an ordinary tensor; RuntimeError on a local tensor."""
    if not is_global(self):
        raise RuntimeError("to_local() needs a global tensor, found a local one; use the tensor as it is")
    local: torch.Tensor
    if isinstance(self, OfSeveralRanks):
        local = of_several_ranks().to_local(self)
        return local.clone() if copy else local
    with torch._C.DisableTorchFunctionSubclass():
        if is_symbolic(self):
            local = torch.ops.aten.alias(self)
            del local._of_placement, local._of_sbp  # type: ignore[attr-defined]
        else:
            local = self.as_subclass(torch.Tensor)
        return local.clone() if copy else local


def to_consistent(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call to_global, of which this was the name in OneFlow 0.5 and 0.6, and warn (DeprecationWarning)."""
    warnings.warn(
        "to_consistent is the name of to_global in OneFlow 0.5 and 0.6", DeprecationWarning, stacklevel=2
    )
    return self.to_global(*args, **kwargs)


def global_to_global(
    self: Any,
    placement: Placement | None = None,
    sbp: Any = None,
    *,
    grad_sbp: Any = None,
    check_meta: bool = False,
    copy: bool = False,
) -> torch.Tensor:
    """Run `to_global` on a tensor that is global already."""
    if not is_global(self):
        raise RuntimeError(
            "global_to_global() needs a global tensor, found a local one; use to_global or local_to_global"
        )
    return to_global(self, placement, sbp, grad_sbp=grad_sbp, copy=copy)


def local_to_global(
    self: Any,
    placement: Placement | None = None,
    sbp: Any = None,
    *,
    check_meta: bool = True,
    copy: bool = False,
) -> torch.Tensor:
    """Run `to_global` on a tensor that is local."""
    if is_global(self):
        raise RuntimeError(
            "local_to_global() needs a local tensor, found a global one; use to_global or global_to_global"
        )
    return to_global(self, placement, sbp, copy=copy)


def global_id(self: Any) -> int:
    """Return an integer that identifies this global tensor; RuntimeError on a local one."""
    placement_of = placement.__wrapped__ if hasattr(placement, "__wrapped__") else placement
    placement_of(self)
    return id(self)


def check_meta_consistency(self: Any) -> None:
    """Check that shape and dtype agree over ranks, which they always do on one rank."""
    placement(self)
