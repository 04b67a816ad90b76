"""Creation functions: torch's, with `placement=`/`sbp=` and OneFlow's positional dtype and device.

The common call goes straight to torch's function.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from .._errors import RefusedType
from .._global import collectives, process_group
from .._global import global_mode as _mode
from .._global.marks import is_global, several
from .._global.placement import placement as Placement
from .._global.tensor import make_global, of_several_ranks
from ._signature import REFUSED, documented, or_else, parse, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from ..sbp import sbp as Sbp


__all__ = [
    "global_to_global",
    "local_to_global",
    "normal_",
    "zeros",
    "ones",
    "empty",
    "full",
    "eye",
    "arange",
    "linspace",
    "logspace",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "empty_strided",
    "hann_window",
    "rand",
    "randn",
    "randint",
    "randint_like",
    "rand_like",
    "randn_like",
    "randperm",
    "normal",
    "new_empty",
    "new_zeros",
    "new_ones",
    "new_full",
]

_DRAWN = frozenset(
    ("rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like")
)
_GLOBAL = frozenset(("placement", "sbp"))
_modes = _mode.stack  # utils.global_view.global_mode; empty outside its blocks


def make(
    function: str, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """target(*args, **kwargs), made global when kwargs hold placement= and sbp=, or inside global_mode."""
    placement, sbp = kwargs.pop("placement", None), kwargs.pop("sbp", None)
    if placement is None and sbp is None:
        if not _modes or not _modes[-1].enabled or _is_like_global(function, args, kwargs):
            return target(*args, **kwargs)
        placement, sbp = _of_type(_modes[-1].placement, kwargs.pop("device", None)), tuple(_modes[-1].sbp)
    _check_placement(function, placement, sbp, kwargs.get("device"))
    requires_grad = kwargs.pop("requires_grad", False)
    with _one_draw(function, placement, sbp):
        tensor = target(*args, **kwargs)
    out = make_global(tensor, placement, sbp, is_full=True)
    return out.requires_grad_(True) if requires_grad else out


def _is_like_global(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the function's result takes placement and SBP from its argument."""
    return function.endswith("_like") and is_global((*args, *kwargs.values())[0])


def _check_placement(
    function: str, placement: object, sbp: object, device: torch.device | str | int | None
) -> None:
    """Refuse arguments that do not say where a global tensor lies."""
    if placement is None or sbp is None:
        missing, present = ("placement", "sbp") if placement is None else ("sbp", "placement")
        raise RefusedType(
            f"{function}() got {present}= without {missing}=; a global tensor needs both, a local one neither"
        )
    if not isinstance(placement, Placement):
        raise TypeError(
            f"{function}(): placement must be an oneflow.placement, found {type(placement).__name__}"
        )
    if device is not None:
        raise RefusedType(
            f"{function}() got device= and placement=; a global tensor's device is its placement's"
        )


def _of_type(placement: Placement, device: torch.device | str | int | None) -> Placement:
    """The placement on devices of this device's type: programs written for one device name it inside
    global_mode.
    """
    device_type = placement.type if device is None else torch.device(device).type
    return placement if device_type == placement.type else type(placement)(device_type, placement.ranks)


def _one_draw(function: str, placement: Placement, sbp: Sbp | Sequence[Sbp]) -> AbstractContextManager[Any]:
    """With several ranks, all sample the same random values."""
    if function not in _DRAWN or not several():
        return contextlib.nullcontext()
    with collectives.checking(function) as request:
        request.must_match(placement=placement, sbp=sbp)
    process_group.start()
    return of_several_ranks().same_random_values()


def creation(
    target: Callable[..., Any],
    signature: str,
    torch_positional: int | None = None,
    spelling: dict[str, str] | None = None,
    what: str = "",
) -> Callable[..., torch.Tensor]:
    """`target` under the documented `signature`.

    `torch_positional` is how many arguments torch takes by position; those after it, positional in
    OneFlow, are handed on by name. `spelling` maps OneFlow's keyword names to torch's.
    """
    name = target.__name__
    shown = parse(signature)
    names = [p.name for p in shown.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    limit = len(names) if torch_positional is None else torch_positional
    spelling = spelling or {}
    ours = _GLOBAL | spelling.keys()

    def extended(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        if len(args) > limit and names:
            if len(args) > len(names):
                raise TypeError(
                    f"{name}() takes {len(names)} positional arguments, {len(args)} were given; its signature"
                    f" is {name}{shown}"
                )
            _add_keywords(kwargs, names[limit:], args[limit:], name)
            args = args[:limit]
        for key in spelling.keys() & kwargs.keys():
            kwargs[spelling[key]] = kwargs.pop(key)
        return make(name, target, args, kwargs)

    if names:

        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            if len(args) <= limit and ours.isdisjoint(kwargs) and not _modes:
                return target(*args, **kwargs)
            return extended(args, kwargs)

    else:

        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            if ours.isdisjoint(kwargs) and not _modes:
                return target(*args, **kwargs)
            return extended(args, kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__, call.__signature__ = "oneflow", shown
    call.__doc__ = _docstring(name, what)
    return call


def _docstring(name: str, what: str) -> str:
    return (
        f"{what or f'torch.{name}'}; `placement` and `sbp`, both or neither, make a global tensor. torch's"
        f" other keywords ({'out, ' if hasattr(torch, name) else ''}layout, pin_memory, ...) are accepted."
    )


def _add_keywords(kwargs: dict[str, Any], names: Iterable[str], values: Iterable[Any], function: str) -> None:
    """Put positional values under their names into `kwargs`; refuse a name that is there already."""
    for name, value in zip(names, values):
        if name in kwargs:
            raise TypeError(f"{function}() got the argument {name!r} twice, by position and by name")
        kwargs[name] = value


@or_else(
    torch.full,
    "full",
    "(size, fill_value, **torch_keywords)",
    "torch.full, the value also a tensor of one element.",
)
def _full(error: Exception, size: Any = None, fill_value: Any = None, **kwargs: Any) -> Any:
    if not isinstance(fill_value, torch.Tensor) or fill_value.numel() != 1:
        return REFUSED
    return torch.full(size, fill_value.reshape(()), **kwargs)


_TAIL = "dtype=None, device=None, placement=None, sbp=None, requires_grad=False"
_SIZE = f"(*size, {_TAIL}, pin_memory=False, **torch_keywords)"
_RANDOM = (
    "(*size, dtype=None, device=None, placement=None, sbp=None, generator=None, requires_grad=False,"
    " **torch_keywords)"
)

zeros = creation(torch.zeros, _SIZE)
ones = creation(torch.ones, _SIZE)
empty = creation(torch.empty, _SIZE)
rand = creation(torch.rand, _RANDOM)
randn = creation(torch.randn, _RANDOM)
full = creation(_full, f"(size, fill_value, {_TAIL}, **torch_keywords)", 2)
linspace = creation(torch.linspace, f"(start, end, steps, {_TAIL}, **torch_keywords)", 3)
logspace = creation(torch.logspace, f"(start, end, steps, base=10.0, {_TAIL}, **torch_keywords)", 4)
zeros_like = creation(torch.zeros_like, f"(input, {_TAIL}, **torch_keywords)", 1)
ones_like = creation(torch.ones_like, f"(input, {_TAIL}, **torch_keywords)", 1)
empty_like = creation(torch.empty_like, f"(input, {_TAIL}, **torch_keywords)", 1)
full_like = creation(torch.full_like, f"(input, fill_value, {_TAIL}, **torch_keywords)", 2)
rand_like = creation(torch.rand_like, f"(input, *, {_TAIL}, generator=None, **torch_keywords)")
randn_like = creation(torch.randn_like, f"(input, *, {_TAIL}, generator=None, **torch_keywords)")
randint_like = creation(
    torch.randint_like,
    f"(x, low, high=None, *, {_TAIL}, generator=None, **torch_keywords)",
    None,
    {"x": "input"},
)
_eye = creation(torch.eye, f"(n, m=None, *, {_TAIL}, **torch_keywords)")
empty_strided = creation(
    torch.empty_strided,
    "(shape, stride, dtype=None, device=None, requires_grad=False, pin_memory=False, **torch_keywords)",
    2,
    {"shape": "size"},
)
hann_window = creation(torch.hann_window, f"(window_length, periodic=True, *, {_TAIL}, **torch_keywords)")
randint = creation(torch.randint, f"(low, high, size=None, *, {_TAIL}, generator=None, **torch_keywords)")
randperm = creation(torch.randperm, f"(n, *, generator=None, {_TAIL}, **torch_keywords)")
_arange = creation(torch.arange, f"(start, end=None, step=1, {_TAIL}, **torch_keywords)", 3)


@documented(f"(n, m=None, *, {_TAIL}, **torch_keywords)")
def eye(n: int, m: int | None = None, **kwargs: Any) -> torch.Tensor:
    """torch.eye; placement= and sbp= make it global."""
    return _eye(n, n if m is None else m, **kwargs)


@documented(f"(start=None, end=None, step=1, {_TAIL}, **torch_keywords)")
def arange(*args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.arange; dtype and device also by position, `end=None` as in OneFlow, placement= and sbp= make it
    global.
    """
    if len(args) < 2 and (
        kwargs.get("end", 0) is None or not args and "start" in kwargs and "end" not in kwargs
    ):
        kwargs.pop("end", None)
        return _arange(0, args[0] if args else kwargs.pop("start"), **kwargs)
    if len(args) < 2 or args[1] is not None:
        return _arange(*args, **kwargs)
    # arange(n, None, step): how OneFlow omits the end
    return _arange(0, args[0], *args[2:], **kwargs)


@documented(f"(mean, std=1.0, size=None, *, {_TAIL}, generator=None, out=None, **torch_keywords)")
def normal(*args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.normal; `size` may be an int or several, `requires_grad` is honoured, placement= and sbp= make it
    global.
    """
    if len(args) > 2 and type(args[2]) is int:
        args = (*args[:2], args[2:])
    elif type(kwargs.get("size")) is int:
        kwargs["size"] = (kwargs["size"],)
    if len(args) < 3 and "size" not in kwargs and kwargs.pop("requires_grad", False):
        return make("normal", torch.normal, args, kwargs).requires_grad_(True)
    if _GLOBAL.isdisjoint(kwargs) and not _modes:
        return torch.normal(*args, **kwargs)
    return make("normal", torch.normal, args, kwargs)


# --------------------------------------------------------------------------- like another tensor
def new_empty(
    x: torch.Tensor,
    size: int | Sequence[int],
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """An empty tensor of `size` with the dtype and device of `x` unless given."""
    return make("new_empty", x.new_empty, (size,), _given(dtype, device, placement, sbp, requires_grad))


def new_zeros(
    x: torch.Tensor,
    size: int | Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Zeros of `size` (default: that of `x`) with the dtype and device of `x` unless given."""
    return make(
        "new_zeros",
        x.new_zeros,
        (x.shape if size is None else size,),
        _given(dtype, device, placement, sbp, requires_grad),
    )


def new_ones(
    x: torch.Tensor,
    size: int | Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Ones of `size` (default: that of `x`) with the dtype and device of `x` unless given."""
    return make(
        "new_ones",
        x.new_ones,
        (x.shape if size is None else size,),
        _given(dtype, device, placement, sbp, requires_grad),
    )


def new_full(
    x: torch.Tensor,
    size: int | Sequence[int],
    fill_value: float,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """A tensor of `size` filled with `fill_value`, with the dtype and device of `x` unless given."""
    return make(
        "new_full", x.new_full, (size, fill_value), _given(dtype, device, placement, sbp, requires_grad)
    )


def _given(
    dtype: torch.dtype | None,
    device: torch.device | str | int | None,
    placement: Placement | None,
    sbp: Sbp | Sequence[Sbp] | None,
    requires_grad: bool,
) -> dict[str, Any]:
    return {
        k: v
        for k, v in dict(
            dtype=dtype, device=device, placement=placement, sbp=sbp, requires_grad=requires_grad
        ).items()
        if v is not None
    }


@spelled("input=x")
def normal_(
    x: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: torch.Generator | None = None
) -> torch.Tensor:
    """x.normal_(mean, std); also on a leaf that requires grad."""
    return x.normal_(mean, std, generator=generator)


def global_to_global(
    input: torch.Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    *,
    grad_sbp: Sbp | Sequence[Sbp] | None = None,
    check_meta: bool = False,
    copy: bool = False,
) -> torch.Tensor:
    """input.global_to_global(...).

    The global shape and the dtype stay; `Tensor.global_to_global` explains the arguments.
    """
    return input.global_to_global(placement, sbp, grad_sbp=grad_sbp, check_meta=check_meta, copy=copy)


def local_to_global(
    input: torch.Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    *,
    check_meta: bool = True,
    copy: bool = False,
) -> torch.Tensor:
    """input.local_to_global(...).

    The result has the dtype of input; `Tensor.local_to_global` explains the arguments.
    """
    return input.local_to_global(placement, sbp, check_meta=check_meta, copy=copy)
