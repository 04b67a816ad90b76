"""Element-wise functions that take more than torch's: scalars first, `inplace=`, booleans, a list to add up.

Each tries torch's function first, so what torch computes stays torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from .._method import own_attribute
from ._signature import REFUSED, documented, or_else, rename, spelled
from .tensor.arithmetic import difference

__all__ = [
    "add",
    "sub",
    "mul",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "greater",
    "greater_equal",
    "not_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isclose",
    "allclose",
    "logaddexp",
    "neg",
    "negative",
    "relu",
    "fmod",
    "floor_divide",
    "addcdiv",
    "lerp_",
    "gt_",
    "div_",
    "erfinv_",
    "masked_fill_",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "clamp_max_",
]


def _numbers(args: Iterable[Any]) -> bool:
    return any(isinstance(a, (int, float, complex)) for a in args)


def _with_inplace(target: Callable[..., Any], signature: str) -> Callable[..., torch.Tensor]:
    """`target` with OneFlow's `inplace=` keyword."""
    name = target.__name__
    method = own_attribute(torch.Tensor, name + "_")

    @or_else(target, name, signature, f"torch.{name}; `inplace=True` changes and returns the first argument.")
    def slow(error: Exception, *args: Any, **kwargs: Any) -> Any:
        if "inplace" not in kwargs:
            return REFUSED
        kwargs = rename(name, kwargs, {"x": "input", "y": "other"})
        inplace = kwargs.pop("inplace")
        if not inplace:
            return target(*args, **kwargs)
        if "input" in kwargs:
            args = (kwargs.pop("input"), *args)
        if not isinstance(args[0], torch.Tensor):
            raise TypeError(
                f"{name}(inplace=True): the first argument must be a tensor, found {type(args[0]).__name__}"
            )
        return method(*args, **kwargs)

    return slow


_add = _with_inplace(torch.add, "(input, other, *, alpha=1, inplace=False, out=None)")
_sub = _with_inplace(torch.sub, "(input, other, *, alpha=1, inplace=False, out=None)")
mul = _with_inplace(torch.mul, "(input, other, *, inplace=False, out=None)")
pow = _with_inplace(torch.pow, "(input, exponent, *, inplace=False, out=None)")
fmod = _with_inplace(torch.fmod, "(input, other, *, inplace=False, out=None)")


def _floor_divide(*args: Any, **kwargs: Any) -> torch.Tensor:
    out = torch.floor_divide(*args, **kwargs)
    is_scalar = args and not isinstance(args[0], torch.Tensor)
    return torch.div(*args, rounding_mode="floor", **kwargs) if out.requires_grad and not is_scalar else out


_floor_divide.__name__ = "floor_divide"
floor_divide = _with_inplace(_floor_divide, "(input, other, *, inplace=False, out=None)")


@or_else(
    _sub,
    "sub",
    "(input, other, *, alpha=1, inplace=False, out=None)",
    "torch.sub, also of bool tensors; `inplace=True` changes and returns the first argument.",
)
def sub(error: Exception, input: Any = None, other: Any = None, *, alpha: float = 1, **kwargs: Any) -> Any:
    out = NotImplemented if kwargs else difference(input, other, alpha)
    return REFUSED if out is NotImplemented else out


@documented("(input=None, other=None, *, alpha=1, inplace=False, out=None, inputs=None)", name="add")
def add(*args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.add; a list of tensors, or more than two, are added up; `inplace=True` changes and returns the
    first tensor.
    """
    if "inputs" in kwargs:
        args = (*args, kwargs.pop("inputs"))
    if len(args) > 2 and not kwargs and all(isinstance(a, torch.Tensor) for a in args):
        args = (args,)
    if len(args) != 1 or not isinstance(args[0], (list, tuple)) or "other" in kwargs:
        return _add(*args, **kwargs)
    return _sum(args[0], **kwargs)


def _sum(tensors: Sequence[torch.Tensor], inplace: bool = False, **kwargs: Any) -> torch.Tensor:
    """Add up a list of tensors, in their order; `inplace` changes and returns the first one."""
    if kwargs or not tensors:
        raise TypeError(
            f"add() of a list takes one or more tensors and `inplace`, found {len(tensors)} tensors and"
            f" {sorted(kwargs)}"
        )
    if len(tensors) > 2:
        _need_alike(tensors)
    total = tensors[0] if inplace else tensors[0] + 0 if len(tensors) == 1 else tensors[0] + tensors[1]
    for t in tensors[1 if inplace else 2 :]:
        total = total.add_(t) if inplace else total + t
    return total


def _need_alike(tensors: Sequence[torch.Tensor]) -> None:
    """Refuse a sum of three or more tensors that differ in size or dtype: OneFlow broadcasts and promotes two
    operands only.
    """
    reference = tensors[0]
    for t in tensors[1:]:
        if t.shape != reference.shape or t.dtype is not reference.dtype:
            raise RuntimeError(
                f"add() of {len(tensors)} tensors needs one shape and dtype, found {tuple(reference.shape)}"
                f" {reference.dtype} and {tuple(t.shape)} {t.dtype}; write a + b + c to broadcast"
            )


_MIRRORED = {
    "eq": "eq",
    "ne": "ne",
    "not_equal": "ne",
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "greater": "lt",
    "greater_equal": "le",
}


def _comparison(name: str) -> Callable[..., torch.Tensor]:
    mirrored = getattr(torch, _MIRRORED[name])

    @or_else(
        getattr(torch, name),
        name,
        "(input, other, *, out=None)",
        f"torch.{name}; the first argument may be a number.",
    )
    def slow(error: Exception, input: Any = None, other: Any = None, **kwargs: Any) -> Any:
        if isinstance(input, (int, float)) and isinstance(other, torch.Tensor):
            return mirrored(other, input, **kwargs)
        return REFUSED

    return slow


eq, ne, lt, le, gt, ge, greater, greater_equal, not_equal = map(
    _comparison, "eq ne lt le gt ge greater greater_equal not_equal".split()
)


def _logical(name: str) -> Callable[..., torch.Tensor]:
    target = getattr(torch, name)

    @or_else(target, name, "(input, other, *, out=None)", f"torch.{name}; either argument may be a number.")
    def slow(error: Exception, input: Any = None, other: Any = None, **kwargs: Any) -> Any:
        if isinstance(input, torch.Tensor) and isinstance(other, (int, float)):
            return target(input, torch.tensor(other, device=input.device), **kwargs)
        if isinstance(other, torch.Tensor) and isinstance(input, (int, float)):
            return target(torch.tensor(input, device=other.device), other, **kwargs)
        return REFUSED

    return slow


logical_and, logical_or, logical_xor = map(_logical, ("logical_and", "logical_or", "logical_xor"))


def _bitwise(name: str) -> Callable[..., torch.Tensor]:
    target, logical = getattr(torch, name), getattr(torch, name.replace("bitwise", "logical"))

    @or_else(
        target,
        name,
        "(input, other, *, out=None)",
        f"torch.{name}; floating operands, which torch refuses, give the logical result (bool).",
    )
    def slow(error: Exception, input: Any = None, other: Any = None, **kwargs: Any) -> Any:
        if (
            isinstance(error, TypeError)
            and isinstance(input, (int, bool))
            and isinstance(other, torch.Tensor)
        ):
            return target(other, input, **kwargs)  # the number first
        if not isinstance(error, NotImplementedError):
            return REFUSED
        return logical(torch.as_tensor(input), torch.as_tensor(other), **kwargs)

    return slow


bitwise_and, bitwise_or, bitwise_xor = map(_bitwise, ("bitwise_and", "bitwise_or", "bitwise_xor"))


def isclose(
    input: torch.Tensor,
    other: torch.Tensor,
    atol: float = 1e-08,
    rtol: float = 1e-05,
    equal_nan: bool = False,
) -> torch.Tensor:
    """torch.isclose with OneFlow's positional order: atol before rtol."""
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


def allclose(
    input: torch.Tensor,
    other: torch.Tensor,
    atol: float = 1e-08,
    rtol: float = 1e-05,
    equal_nan: bool = False,
) -> bool:
    """torch.allclose with OneFlow's positional order: atol before rtol."""
    return torch.allclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@or_else(
    torch.addcdiv,
    "addcdiv",
    "(input, tensor1, tensor2, *, value=1, out=None)",
    "torch.addcdiv; integer tensors, which torch refuses, are divided in the default dtype.",
)
def addcdiv(
    error: Exception, input: Any = None, tensor1: Any = None, tensor2: Any = None, **kwargs: Any
) -> Any:
    tensors = (input, tensor1, tensor2)
    if (
        not all(isinstance(t, torch.Tensor) for t in tensors)
        or tensor1.is_floating_point()
        or tensor2.is_floating_point()
    ):
        return REFUSED
    return torch.addcdiv(
        *(t if t.is_floating_point() else t.to(torch.get_default_dtype()) for t in tensors), **kwargs
    )


@spelled("input=x other=y")
def logaddexp(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """torch.logaddexp; integers are computed in the default dtype."""
    if (
        isinstance(x, torch.Tensor)
        and isinstance(y, torch.Tensor)
        and not (x.is_floating_point() or y.is_floating_point() or x.is_complex())
    ):
        x, y = x.to(torch.get_default_dtype()), y.to(torch.get_default_dtype())
    return torch.logaddexp(x, y, out=out) if out is not None else torch.logaddexp(x, y)


def _of_bool(
    name: str, signature: str, how: Callable[..., torch.Tensor], doc: str
) -> Callable[..., torch.Tensor]:
    @or_else(getattr(torch, name), name, signature, f"torch.{name}; {doc}.")
    def slow(error: Exception, *args: Any, **kwargs: Any) -> Any:
        kwargs = rename(name, kwargs, {"x": "input"})
        tensors = [*args, kwargs.get("input")]
        if (
            tensors
            and isinstance(tensors[0] if args else tensors[-1], torch.Tensor)
            and (tensors[0] if args else tensors[-1]).dtype is torch.bool
        ):
            return how(*args, **kwargs)
        return REFUSED

    return slow


def _neg(name: str) -> Callable[..., torch.Tensor]:
    return _of_bool(
        name,
        "(x, *, out=None)",
        lambda input, **k: torch.neg(input.to(torch.get_default_dtype()), **k),
        "a bool tensor becomes the default dtype",
    )


neg, negative = _neg("neg"), _neg("negative")


@spelled("input=x")
def relu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """torch.relu; `inplace=True` changes x; a bool tensor stays as it is."""
    if isinstance(x, torch.Tensor) and x.dtype is torch.bool:
        return x if inplace else x.clone()
    return torch.relu_(x) if inplace else torch.relu(x)


# --------------------------------------------------------------------------- in-place functions torch has as
# methods only
@spelled("input=start")
def lerp_(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """start.lerp_(end, weight)."""
    return start.lerp_(end, weight)


@spelled("x=input")
def gt_(input: torch.Tensor, other: torch.Tensor | float) -> torch.Tensor:
    """input.gt_(other).

    In place, as torch.Tensor.gt_; the dtype of input stays.
    """
    return input.gt_(other)


@spelled("x=input")
def div_(
    input: torch.Tensor,
    other: torch.Tensor | float,
    *,
    rounding_mode: Literal["trunc", "floor"] | None = None,
) -> torch.Tensor:
    """input.div_(other).

    In place, as torch.Tensor.div_; returns input.
    """
    return input.div_(other, rounding_mode=rounding_mode)


@spelled("input=x")
def erfinv_(x: torch.Tensor) -> torch.Tensor:
    """x.erfinv_().

    In place, as torch.Tensor.erfinv_; returns x.
    """
    return x.erfinv_()


@spelled("x=input")
def masked_fill_(input: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | float) -> torch.Tensor:
    """input.masked_fill_(mask, value); the mask may be of any integer dtype."""
    return input.masked_fill_(mask if mask.dtype is torch.bool else mask.bool(), value)


@spelled("max=min")
def clamp_max_(input: torch.Tensor, min: torch.Tensor | float) -> torch.Tensor:
    """torch.clamp_max_; OneFlow calls the bound `min`."""
    return torch.clamp_max_(input, min)
