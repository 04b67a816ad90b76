"""Operators of `oneflow._C` that do torch's work under another argument list or with another result.

They differ from the public function of the same name: pooling always gives the indices too, argwhere
gives a padded result and a count, nonzero gives a tuple, norm is linalg's, the counts of unique are int32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn import functional as F

from . import reduce
from ._signature import spelled
from .linalg_ops import norm as _linalg_norm
from .nn import activation as nn_activation
from .nn import pooling as nn_pooling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._global.placement import placement as Placement
    from ..sbp import sbp as Sbp


__all__ = [
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "argwhere",
    "bernoulli_",
    "broadcast_shapes",
    "broadcast_tensors",
    "depend",
    "einsum",
    "embedding",
    "embedding_renorm_",
    "expand",
    "exponential_",
    "fft",
    "fill_",
    "grid_sample",
    "hfft",
    "ifft",
    "ihfft",
    "irfft",
    "rfft",
    "meshgrid",
    "nonzero",
    "norm",
    "scaled_dot_product_attention",
    "scatter",
    "tensordot",
    "to_global",
    "to_local",
    "unique",
    "upsample",
    "view",
]


# --------------------------------------------------------------------------- pooling
def _adaptive_max(spatial: int) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    torch_s = getattr(F, f"adaptive_max_pool{spatial}d")

    def pool(
        input: torch.Tensor, output_size: int | Sequence[int], data_format: str = "channels_first"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return nn_pooling._pooled(torch_s, spatial, data_format, input, output_size, return_indices=True)

    pool.__name__ = pool.__qualname__ = f"adaptive_max_pool{spatial}d"
    pool.__doc__ = "(output, int64 indices) of the maximum pooling to a given size."
    return pool


def _max(spatial: int) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    ours = getattr(nn_pooling, f"max_pool{spatial}d")

    @spelled("x=input")
    def pool(
        input: torch.Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        return_indices: bool = True,
        ceil_mode: bool = False,
        data_format: str = "channels_first",
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return ours(input, kernel_size, stride, padding, dilation, True, ceil_mode, data_format)

    pool.__name__ = pool.__qualname__ = f"max_pool{spatial}d"
    pool.__doc__ = (
        "(output, int64 indices) of maximum pooling, whatever `return_indices` says, as OneFlow's operator."
    )
    return pool


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max, (1, 2, 3))
max_pool1d, max_pool2d, max_pool3d = map(_max, (1, 2, 3))


# --------------------------------------------------------------------------- indices
@spelled("input=x")
def argwhere(x: torch.Tensor, dtype: torch.dtype = torch.int32) -> tuple[torch.Tensor, torch.Tensor]:
    """(indices, count): the rows [:count] of the (x.numel(), x.dim()) indices are the coordinates of what is
    not zero; the rest is zero.
    """
    indices = torch.argwhere(x)
    out = x.new_zeros((x.numel(), x.dim()), dtype=dtype)
    out[: len(indices)] = indices
    return out, torch.tensor([len(indices)], dtype=dtype, device=x.device)


@spelled("x=input")
def nonzero(input: torch.Tensor, as_tuple: bool = False) -> tuple[torch.Tensor, ...]:
    """torch.nonzero in a tuple: of one (n, dim) tensor, or of one tensor per dimension."""
    return torch.nonzero(input, as_tuple=True) if as_tuple else (torch.nonzero(input),)


@spelled("input=x")
def unique(
    x: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool | torch.dtype = False,
    return_counts: bool = False,
    dtype: torch.dtype = torch.int32,
) -> torch.Tensor | Any:
    """torch.unique, the values ascending in any case; inverse and counts in `dtype`, which may also be the
    third argument.
    """
    if isinstance(return_inverse, torch.dtype):
        dtype, return_inverse = return_inverse, False
    return reduce.unique(x, sorted, return_inverse, return_counts, dtype)


def scatter(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor | float,
    *,
    reduce: Literal["add", "multiply"] | None = None,
    inplace: bool = False,
) -> torch.Tensor:
    """torch.scatter; `inplace` writes into `input`."""
    target = torch.Tensor.scatter_ if inplace else torch.scatter
    return target(input, dim, index, src) if reduce is None else target(input, dim, index, src, reduce=reduce)


def embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> torch.Tensor:
    """Rows of `weight` at `indices`; the row `padding_idx` gets no gradient.

    The result has shape (*indices.shape, embedding_dim), as in torch.nn.functional.embedding.
    """
    return torch.embedding(
        weight, indices, -1 if padding_idx is None else padding_idx % weight.shape[0], scale_grad_by_freq
    )


def _in_place(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    """The arguments of an operator whose first parameter OneFlow calls `in`, which no Python parameter can be
    called.
    """
    names = ("in", *names)
    for ours, value in zip(names, args):
        if ours in kwargs:
            raise TypeError(f"{name}() got the argument {ours!r} twice")
        kwargs[ours] = value
    if len(args) > len(names) or set(kwargs) != set(names):
        raise TypeError(
            f"{name}() takes the arguments {', '.join(names)}, found {len(args)} by position and the keywords"
            f" {sorted(kwargs)}"
        )
    return [kwargs[n] for n in names]


def embedding_renorm_(*args: Any, **kwargs: Any) -> torch.Tensor:
    """embedding_renorm_(in, indices, max_norm, norm_type): in place, the rows at `indices` scaled down to
    norm `max_norm`.
    """
    weight, indices, max_norm, norm_type = _in_place(
        "embedding_renorm_", args, kwargs, ("indices", "max_norm", "norm_type")
    )
    with torch.no_grad():
        return torch.embedding_renorm_(weight, indices, max_norm, norm_type)


def fill_(*args: Any, **kwargs: Any) -> torch.Tensor:
    """fill_(in, value): in place; `value` is a number or a tensor of one element."""
    input, value = _in_place("fill_", args, kwargs, ("value",))
    return input.fill_(value)


# --------------------------------------------------------------------------- shape
@spelled("input=x")
def expand(x: torch.Tensor, shape: int | Sequence[int], *rest: int) -> torch.Tensor:
    """x.expand(shape)."""
    return x.expand(shape, *rest)


@spelled("input=x")
def view(x: torch.Tensor, shape: int | Sequence[int] | torch.dtype, *rest: int) -> torch.Tensor:
    """x.view(shape)."""
    return x.view(shape, *rest)


def broadcast_tensors(
    tensors: torch.Tensor | Sequence[torch.Tensor], *rest: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """torch.broadcast_tensors of a list of tensors."""
    return torch.broadcast_tensors(*([tensors] if isinstance(tensors, torch.Tensor) else tensors), *rest)


def broadcast_shapes(shapes: Sequence[Sequence[int]]) -> torch.Size:
    """torch.broadcast_shapes of a list of shapes."""
    return torch.broadcast_shapes(*shapes)


def einsum(
    equation: str, operands: torch.Tensor | Sequence[torch.Tensor], *rest: torch.Tensor
) -> torch.Tensor:
    """torch.einsum of a list of operands."""
    return torch.einsum(equation, operands, *rest)


def meshgrid(
    tensors: torch.Tensor | Sequence[torch.Tensor], *rest: Any, indexing: str = "ij"
) -> tuple[torch.Tensor, ...]:
    """torch.meshgrid of a list of tensors; `indexing` also second by position."""
    if isinstance(tensors, torch.Tensor):
        tensors = [tensors]
    if rest and isinstance(rest[-1], str):
        rest, indexing = rest[:-1], rest[-1]
    return torch.meshgrid(*tensors, *rest, indexing=indexing)


def tensordot(
    a: torch.Tensor,
    b: torch.Tensor,
    dims_a: Sequence[int] | None = None,
    dims_b: Sequence[int] | None = None,
    dims: int | Sequence[int] | None = None,
) -> torch.Tensor:
    """torch.tensordot over the dimensions `dims_a` of a and `dims_b` of b, or over the last and first `dims`
    ones.

    TypeError for `dims` together with dims_a and dims_b, and without any of them.
    """
    if (dims_a is None) == (dims is None):
        raise TypeError(
            f"tensordot() takes dims_a and dims_b, or dims, found dims_a={dims_a!r}, dims_b={dims_b!r},"
            f" dims={dims!r}"
        )
    dims = dims_a if dims is None else dims
    return torch.tensordot(a, b, dims if dims_b is None else (list(dims), list(dims_b)))


def depend(
    input: torch.Tensor,
    depend: torch.Tensor | Sequence[torch.Tensor] | None = None,
    *,
    depends: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """`input`, ordered after the tensor `depend` or the list of tensors `depends`.

    The result has the shape and dtype of `input`. TypeError unless exactly one of the two is given.
    """
    if (depend is None) == (depends is None):
        raise TypeError(f"depend() takes depend or depends, found depend={depend!r}, depends={depends!r}")
    return nn_activation.depend(input, depends if depend is None else depend)


# --------------------------------------------------------------------------- numbers
@spelled("p=ord")
def norm(
    input: torch.Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    for_norm: bool = False,
) -> torch.Tensor:
    """linalg.norm; with `for_norm` oneflow.norm, which calls the order p.

    The arguments are those of torch.linalg.norm.
    """
    if for_norm:
        return reduce.norm(input, "fro" if ord is None else ord, dim, keepdim, dtype)
    return _linalg_norm(input, ord, dim, keepdim, dtype)


def _fourier(name: str) -> Callable[..., torch.Tensor]:
    target = getattr(torch.fft, name)

    def transform(input: torch.Tensor, n: int = -1, dim: int = -1, norm: str | None = None) -> torch.Tensor:
        return target(input, None if n == -1 else n, dim, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"torch.fft.{name}; n=-1 is the length of the input."
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(_fourier, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))


@spelled("input=x")
def exponential_(
    x: torch.Tensor, lambd: float = 1.0, generator: torch.Generator | None = None
) -> torch.Tensor:
    """x.exponential_(lambd, generator=generator).

    In place, as torch.Tensor.exponential_; returns x.
    """
    return x.exponential_(lambd, generator=generator)


def bernoulli_(
    input: torch.Tensor,
    p: float | None = None,
    *,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """In place, ones with probability `p`, or with the probabilities that `input` holds; `dtype` is the
    input's own.

    TypeError for another dtype.
    """
    if dtype not in (None, torch.float32, input.dtype):
        raise TypeError(f"bernoulli_() writes into a tensor of {input.dtype}, found dtype={dtype}")
    with torch.no_grad():
        return (
            input.copy_(torch.bernoulli(input, generator=generator))
            if p is None
            else input.bernoulli_(p, generator=generator)
        )


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    seed: int = 0,
) -> torch.Tensor:
    """torch's attention; `seed` other than 0 fixes the dropout mask and leaves torch's generators where they
    were.
    """
    if not seed or not dropout_p:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    with torch.random.fork_rng([query.device] if query.is_cuda else []):
        torch.manual_seed(seed)
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)


# --------------------------------------------------------------------------- images
@spelled("mode=interpolation_mode")
def grid_sample(
    input: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> torch.Tensor:
    """torch's grid_sample; `mode` is called interpolation_mode."""
    return F.grid_sample(input, grid, interpolation_mode, padding_mode, bool(align_corners))


def upsample(
    x: torch.Tensor,
    height_scale: float,
    width_scale: float,
    align_corners: bool,
    interpolation: Literal["nearest", "bilinear"],
    data_format: str = "channels_first",
) -> torch.Tensor:
    """Images resized by two factors; `interpolation` is "nearest" or "bilinear".

    The input has shape (N, C, H, W), the result (N, C, H * height_scale, W * width_scale).
    """
    corners = None if interpolation == "nearest" else align_corners
    factors = float(height_scale), float(width_scale)
    return nn_pooling._pooled(
        F.interpolate, 2, data_format, x, scale_factor=factors, mode=interpolation, align_corners=corners
    )


# --------------------------------------------------------------------------- global tensors
def to_global(
    x: torch.Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    grad_sbp: Sbp | Sequence[Sbp] | None = None,
    check_meta: bool = True,
    copy: bool = False,
) -> torch.Tensor:
    """x.to_global(placement, sbp, grad_sbp=, check_meta=, copy=).

    The result has the global shape and the dtype of x; `Tensor.to_global` explains the arguments.
    """
    extra = {} if grad_sbp is None or grad_sbp == [] else {"grad_sbp": grad_sbp}
    return x.to_global(placement, sbp, check_meta=check_meta, copy=copy, **extra)


def to_local(x: torch.Tensor, copy: bool = False) -> torch.Tensor:
    """The local shard of a global tensor.

    It has the dtype of the global tensor; its shape is that of the shard.
    """
    return x.to_local(copy=copy)
