"""Methods of torch.Tensor that OneFlow calls in ways torch refuses: the "replace" rows of
`_tables/tensor.py`.

Each function takes torch's method and returns its replacement. The replacement calls torch's method first and
tries OneFlow's meaning only if torch raised. A call that torch accepts keeps torch's result, and a call that
neither library accepts raises torch's own error.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from ... import _bind
from ..._errors import RefusedValue
from ..._global.marks import OfSeveralRanks
from ..._global.tensor import of_several_ranks
from .replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp
    from .replacing import Method


__all__ = []


# --------------------------------------------------------------------------- numpy
@replacing
def numpy(
    original: Method, error: Exception, self: torch.Tensor, dtype: Any = None, *, force: bool = False
) -> Any:
    """numpy() of tensors that torch refuses: one that requires grad, is on another device, is bfloat16 (->
    float32), or is a zero without storage. Also numpy(dtype).
    """
    if dtype is None or type(dtype) is int:  # a blob's numpy(rank): there is one rank
        plain = _plain(self)
        if plain is not None:
            return original(plain)
        return NotImplemented if dtype is None else original(self, force=force)
    return self.numpy(force=force).astype(_numpy_dtype(dtype), copy=False)


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return `tensor` in a form that torch's numpy() accepts, or None if it already is.

    A copy, as in OneFlow: an array of a weight keeps its values when the weight is trained.
    """
    plain = tensor.detach() if tensor.requires_grad else tensor
    if plain.device.type not in ("cpu", "meta"):
        plain = plain.cpu()
    elif plain is not tensor:
        plain = plain.clone()
    plain = plain.resolve_conj().resolve_neg()
    if plain._is_zerotensor():  # a gradient that is zero everywhere, as of torch.sign
        plain = plain.clone()
    if plain.dtype is torch.bfloat16:
        plain = plain.float()
    return None if plain is tensor else plain


def _numpy_dtype(dtype: Any) -> Any:
    if isinstance(dtype, torch.dtype):
        return torch.empty(0, dtype=dtype).numpy().dtype if dtype is not torch.bfloat16 else "float32"
    return dtype


# --------------------------------------------------------------------------- in place on leaves
def _is_leaf_error(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and "leaf Variable that requires grad" in str(error)


def _filling(names: Sequence[tuple[str, float]]) -> Callable[..., Any]:
    """In-place filling of a leaf that requires grad, without recording; OneFlow's keyword names and
    positions.
    """

    def slow(original: Method, error: Exception, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if _is_leaf_error(error):
            with torch.no_grad():
                return original(self, *args, **kwargs)
        if isinstance(error, TypeError):
            values, kwargs = list(args), dict(kwargs)
            if len(values) > len(names):  # OneFlow takes the generator by position
                kwargs.setdefault("generator", values.pop())
            for i, (ours, default) in enumerate(names):
                if ours in kwargs:
                    values += [d for _, d in names[len(values) : i]] + [kwargs.pop(ours)]
            args = tuple(values)
            try:
                return original(self, *args, **kwargs)
            except TypeError:
                return NotImplemented
            except RuntimeError as again:
                if not _is_leaf_error(again):
                    raise
                with torch.no_grad():
                    return original(self, *args, **kwargs)
        return NotImplemented

    return slow


uniform_ = replacing(_filling((("a", 0), ("b", 1))))
normal_ = replacing(_filling((("mean", 0.0), ("std", 1.0))))
exponential_ = replacing(_filling((("lambd", 1.0),)))


@replacing
def bernoulli_(
    original: Method,
    error: Exception,
    self: torch.Tensor,
    *args: Any,
    dtype: torch.dtype | None = None,
    **kwargs: Any,
) -> Any:
    """bernoulli_ with OneFlow's dtype=, which changes nothing in place."""
    return NotImplemented if dtype is None else original(self, *args, **kwargs)


@replacing
def copy_(
    original: Method, error: Exception, self: torch.Tensor, other: Any, *args: Any, **kwargs: Any
) -> Any:
    """copy_ from a NumPy array of the same shape and dtype; into a leaf that requires grad."""
    import numpy as np

    if isinstance(other, np.ndarray):
        if tuple(other.shape) != tuple(self.shape):
            raise RefusedValue(
                f"copy_: the array has the shape {other.shape}, the tensor {tuple(self.shape)}; they must"
                " agree"
            )
        other = torch.from_numpy(np.ascontiguousarray(other).reshape(other.shape))
        if isinstance(self, OfSeveralRanks):
            other = of_several_ranks().from_full(other, self.placement, self.sbp)
    elif not _is_leaf_error(error):
        return NotImplemented
    with torch.no_grad():
        return original(self, other, *args, **kwargs)


@replacing
def requires_grad_(
    original: Method, error: Exception, self: torch.Tensor, requires_grad: bool = False, **kwargs: Any
) -> Any:
    """requires_grad_(False) of a tensor that is not a leaf: detached in place."""
    if isinstance(error, RuntimeError) and requires_grad is False and not self.is_leaf:
        return self.detach_()
    return NotImplemented


@replacing
def backward(
    original: Method,
    error: Exception,
    self: torch.Tensor,
    gradient: torch.Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """backward() of one complex number starts from 1, as that of a real one."""
    if gradient is not None or not self.is_complex() or self.numel() != 1 or not self.requires_grad:
        return NotImplemented
    return original(self, torch.ones_like(self), *args, **kwargs)


@replacing
def format_(original: Method, error: Exception, self: torch.Tensor, format_spec: str) -> Any:
    """f"{loss:.2f}" of a subclass of Tensor without dimensions, which torch formats for Tensor
    itself only.
    """
    if self.dim() or self.is_meta:
        return NotImplemented
    return self.detach().item().__format__(format_spec)


@replacing
def deepcopy(original: Method, error: Exception, self: torch.Tensor, memo: dict[int, Any]) -> Any:
    """copy.deepcopy of a tensor that is not a leaf: a detached copy."""
    if self.is_leaf:
        return NotImplemented
    import copy

    memo[id(self)] = out = copy.deepcopy(self.detach(), memo)
    return out


# --------------------------------------------------------------------------- masks
@replacing
def masked(
    original: Method, error: Exception, self: torch.Tensor, mask: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """masked_fill, masked_fill_ and masked_select with a mask of any dtype (true where not zero)."""
    if not isinstance(mask, torch.Tensor) or mask.dtype is torch.bool:
        return NotImplemented
    return original(self, mask.bool(), *args, **kwargs)


@replacing
def where(
    original: Method, error: Exception, self: torch.Tensor, x: Any = None, y: Any = None, **kwargs: Any
) -> Any:
    """cond.where(x, y), OneFlow's reading: the tensor is the condition (bool or integer). x.where(cond, y)
    stays torch's.
    """
    if kwargs or y is None or x is None or self.is_floating_point() or self.is_complex():
        return NotImplemented
    if isinstance(x, torch.Tensor) and x.dtype is torch.bool:
        return NotImplemented
    return torch.where(self.bool(), x, y)


def _logical(name: str) -> Callable[[Method], Method]:
    """& | ^ with a floating operand, which torch refuses: the logical result, a bool tensor."""
    function = getattr(torch, name)

    def slow(original: Method, error: Exception, self: torch.Tensor, other: Any) -> Any:
        if not isinstance(error, NotImplementedError):
            return NotImplemented
        return function(self, torch.as_tensor(other, device=self.device))

    return replacing(slow)


logical_and, logical_or, logical_xor = map(_logical, ("logical_and", "logical_or", "logical_xor"))


# --------------------------------------------------------------------------- the function of the same name
def through(public: str) -> Callable[[Method], Method]:
    """A method that falls back to the top-level function `oneflow.<public>` when torch's method refuses the
    call.
    """

    def slow(original: Method, error: Exception, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        function = getattr(sys.modules[_bind.ROOT], public)
        try:
            return function(self, *args, **kwargs)
        except Exception:  # OneFlow and torch refuse the call, so torch's own error is raised
            return NotImplemented

    return replacing(slow)


argmax, argmin, topk, cumsum, cumprod, median, prod, std, var = map(
    through, "argmax argmin topk cumsum cumprod median prod std var".split()
)
softmax, log_softmax, quantile, unique, addmm, bernoulli = map(
    through, "softmax log_softmax quantile unique addmm bernoulli".split()
)
dot, repeat_interleave, split, mm = map(through, "dot repeat_interleave split mm".split())


and_, or_, xor_ = map(through, ("logical_and", "logical_or", "logical_xor"))
broadcast_to, unflatten, addcdiv, cross, squeeze, logaddexp, scatter_add, scatter, flip = map(
    through, "broadcast_to unflatten addcdiv cross squeeze logaddexp scatter_add scatter flip".split()
)


# --------------------------------------------------------------------------- creation from a tensor
def _new(has_fill: bool) -> Callable[[Method], Method]:
    def slow(original: Method, error: Exception, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        names = ("size", "fill_value", "dtype", "device", "placement", "sbp", "requires_grad")
        if not isinstance(error, TypeError) or kwargs.keys() - {*names, "layout", "pin_memory"}:
            return NotImplemented
        if has_fill and len(args) > 2:
            kwargs.update(zip(names[2:], args[2:]))
            args = args[:2]
        elif not args and "size" not in kwargs and original.__name__ in ("new_zeros", "new_ones"):
            args = (self.shape,)
        elif not {"placement", "sbp"} & kwargs.keys():
            return NotImplemented
        from ..creation import make  # not loaded by `import oneflow`

        return make(original.__name__, functools.partial(original, self), args, kwargs)

    return replacing(slow)


new_empty = new_zeros = new_ones = _new(False)
new_full = _new(True)


@replacing
def new_tensor(
    original: Method,
    error: Exception,
    self: torch.Tensor,
    data: Any,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    requires_grad: bool = False,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
) -> Any:
    """new_tensor with dtype and device by position, and placement= with sbp=; of the data that only
    oneflow.tensor takes.
    """
    from ..from_data import make, tensor  # not loaded by `import oneflow`

    options = {
        k: v
        for k, v in dict(
            dtype=dtype, device=device, placement=placement, sbp=sbp, requires_grad=requires_grad
        ).items()
        if v is not None
    }
    if options.keys().isdisjoint(("placement", "sbp")):
        return tensor(data, **{"dtype": self.dtype, "device": self.device, **options})
    return make("new_tensor", functools.partial(original, self), (data,), options)


# --------------------------------------------------------------------------- positions and keyword names
def _respelled(spec: str) -> Callable[[Method], Method]:
    """torch's method under OneFlow's argument names and positions, `spec` as in `_tables/renames.py`, without
    the tensor.
    """
    positional, bar, by_name = spec.partition("|")
    names = [item.partition("=")[::2] for item in (positional + by_name).split()]
    limit = len(positional.split()) if bar else len(names)
    pairs = {ours: theirs for ours, theirs in names if theirs}

    def slow(original: Method, error: Exception, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if (
            not isinstance(error, TypeError)
            or (len(args) <= limit and pairs.keys().isdisjoint(kwargs))
            or len(args) > len(names)
        ):
            return NotImplemented
        kwargs = {**{ours: value for (ours, _), value in zip(names[limit:], args[limit:])}, **kwargs}
        kwargs = {pairs.get(k, k): v for k, v in kwargs.items()}
        try:
            return original(self, *args[:limit], **kwargs)
        except TypeError:
            return NotImplemented

    return replacing(slow)


gather = _respelled("dim index | sparse_grad")
index_add = index_add_ = _respelled("dim index source | alpha")
nonzero = _respelled("| as_tuple")
swapaxes = _respelled("dim0=axis0 dim1=axis1")
type_as = _respelled("target=other")


@replacing
def type_(
    original: Method, error: Exception, self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """type("oneflow.FloatTensor"), type(oneflow.FloatTensor): OneFlow's spelling of torch's type names."""
    if hasattr(type(dtype), "type_name"):
        dtype = type(dtype).type_name(dtype)
    if isinstance(dtype, str) and dtype.startswith("oneflow."):
        return original(self, "torch." + dtype[len("oneflow.") :], *args, **kwargs)
    return NotImplemented
