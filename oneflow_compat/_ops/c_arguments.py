"""Operators of `oneflow._C` that do torch's work under another argument list or with another result.

They differ from the public function of the same name: pooling always gives the indices too, argwhere
gives a padded result and a count, nonzero gives a tuple, norm is linalg's, the counts of unique are int32.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from . import nn_activation, nn_pooling, reduce
from ._signature import spelled
from .linalg_ops import norm as _linalg_norm

__all__ = [
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "argwhere",
    "batch_norm_backward_elemt",
    "batch_norm_backward_reduce",
    "batch_norm_elemt",
    "batch_norm_stats",
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
def _adaptive_max(spatial):
    torch_s = getattr(F, f"adaptive_max_pool{spatial}d")

    def pool(input, output_size, data_format="channels_first"):
        return nn_pooling._pooled(torch_s, spatial, data_format, input, output_size, return_indices=True)

    pool.__name__ = pool.__qualname__ = f"adaptive_max_pool{spatial}d"
    pool.__doc__ = "(output, int64 indices) of the maximum pooling to a given size."
    return pool


def _max(spatial):
    ours = getattr(nn_pooling, f"max_pool{spatial}d")

    @spelled("x=input")
    def pool(
        input,
        kernel_size,
        stride=None,
        padding=0,
        dilation=1,
        return_indices=True,
        ceil_mode=False,
        data_format="channels_first",
    ):
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
def argwhere(x, dtype=torch.int32):
    """(indices, count): the rows [:count] of the (x.numel(), x.dim()) indices are the coordinates of what is
    not zero; the rest is zero.
    """
    indices = torch.argwhere(x)
    out = x.new_zeros((x.numel(), x.dim()), dtype=dtype)
    out[: len(indices)] = indices
    return out, torch.tensor([len(indices)], dtype=dtype, device=x.device)


@spelled("x=input")
def nonzero(input, as_tuple=False):
    """torch.nonzero in a tuple: of one (n, dim) tensor, or of one tensor per dimension."""
    return torch.nonzero(input, as_tuple=True) if as_tuple else (torch.nonzero(input),)


@spelled("input=x")
def unique(x, sorted=True, return_inverse=False, return_counts=False, dtype=torch.int32):
    """torch.unique, the values ascending in any case; inverse and counts in `dtype`, which may also be the
    third argument.
    """
    if isinstance(return_inverse, torch.dtype):
        return_inverse, dtype = False, return_inverse
    return reduce.unique(x, sorted, return_inverse, return_counts, dtype)


def scatter(input, dim, index, src, *, reduce=None, inplace=False):
    """torch.scatter; `inplace` writes into `input`."""
    target = torch.Tensor.scatter_ if inplace else torch.scatter
    return target(input, dim, index, src) if reduce is None else target(input, dim, index, src, reduce=reduce)


def embedding(weight, indices, padding_idx=None, scale_grad_by_freq=False):
    """Rows of `weight` at `indices`; the row `padding_idx` gets no gradient.

    The result has shape (*indices.shape, embedding_dim), as in torch.nn.functional.embedding.
    """
    return torch.embedding(
        weight, indices, -1 if padding_idx is None else padding_idx % weight.shape[0], scale_grad_by_freq
    )


def _in_place(name, args, kwargs, names):
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


def embedding_renorm_(*args, **kwargs):
    """embedding_renorm_(in, indices, max_norm, norm_type): in place, the rows at `indices` scaled down to
    norm `max_norm`.
    """
    weight, indices, max_norm, norm_type = _in_place(
        "embedding_renorm_", args, kwargs, ("indices", "max_norm", "norm_type")
    )
    with torch.no_grad():
        return torch.embedding_renorm_(weight, indices, max_norm, norm_type)


def fill_(*args, **kwargs):
    """fill_(in, value): in place; `value` is a number or a tensor of one element."""
    input, value = _in_place("fill_", args, kwargs, ("value",))
    return input.fill_(value)


# --------------------------------------------------------------------------- shape
@spelled("input=x")
def expand(x, shape, *rest):
    """x.expand(shape)."""
    return x.expand(shape, *rest)


@spelled("input=x")
def view(x, shape, *rest):
    """x.view(shape)."""
    return x.view(shape, *rest)


def broadcast_tensors(tensors, *rest):
    """torch.broadcast_tensors of a list of tensors."""
    return torch.broadcast_tensors(*([tensors] if isinstance(tensors, torch.Tensor) else tensors), *rest)


def broadcast_shapes(shapes):
    """torch.broadcast_shapes of a list of shapes."""
    return torch.broadcast_shapes(*shapes)


def einsum(equation, operands, *rest):
    """torch.einsum of a list of operands."""
    return torch.einsum(equation, operands, *rest)


def meshgrid(tensors, *rest, indexing="ij"):
    """torch.meshgrid of a list of tensors; `indexing` also second by position."""
    if isinstance(tensors, torch.Tensor):
        tensors = [tensors]
    if rest and isinstance(rest[-1], str):
        rest, indexing = rest[:-1], rest[-1]
    return torch.meshgrid(*tensors, *rest, indexing=indexing)


def tensordot(a, b, dims_a=None, dims_b=None, dims=None):
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


def depend(input, depend=None, *, depends=None):
    """`input`, ordered after the tensor `depend` or the list of tensors `depends`.

    The result has the shape and dtype of `input`. TypeError unless exactly one of the two is given.
    """
    if (depend is None) == (depends is None):
        raise TypeError(f"depend() takes depend or depends, found depend={depend!r}, depends={depends!r}")
    return nn_activation.depend(input, depends if depend is None else depend)


# --------------------------------------------------------------------------- numbers
@spelled("p=ord")
def norm(input, ord=None, dim=None, keepdim=False, *, dtype=None, for_norm=False):
    """linalg.norm; with `for_norm` oneflow.norm, which calls the order p.

    The arguments are those of torch.linalg.norm.
    """
    if for_norm:
        return reduce.norm(input, "fro" if ord is None else ord, dim, keepdim, dtype)
    return _linalg_norm(input, ord, dim, keepdim, dtype)


def _fourier(name):
    target = getattr(torch.fft, name)

    def transform(input, n=-1, dim=-1, norm=None):
        return target(input, None if n == -1 else n, dim, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"torch.fft.{name}; n=-1 is the length of the input."
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(_fourier, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))


@spelled("input=x")
def exponential_(x, lambd=1.0, generator=None):
    """x.exponential_(lambd, generator=generator).

    In place, as torch.Tensor.exponential_; returns x.
    """
    return x.exponential_(lambd, generator=generator)


def bernoulli_(input, p=None, *, dtype=None, generator=None):
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
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, seed=0
):
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
def grid_sample(input, grid, interpolation_mode="bilinear", padding_mode="zeros", align_corners=False):
    """torch's grid_sample; `mode` is called interpolation_mode."""
    return F.grid_sample(input, grid, interpolation_mode, padding_mode, bool(align_corners))


def upsample(x, height_scale, width_scale, align_corners, interpolation, data_format="channels_first"):
    """Images resized by two factors; `interpolation` is "nearest" or "bilinear".

    The input has shape (N, C, H, W), the result (N, C, H * height_scale, W * width_scale).
    """
    corners = None if interpolation == "nearest" else align_corners
    factors = float(height_scale), float(width_scale)
    return nn_pooling._pooled(
        F.interpolate, 2, data_format, x, scale_factor=factors, mode=interpolation, align_corners=corners
    )


# --------------------------------------------------------------------------- batch normalisation in steps
def _spread(value, like, axis):
    return value.reshape([-1 if d == axis % like.dim() else 1 for d in range(like.dim())])


def _other(input, axis):
    return [d for d in range(input.dim()) if d != axis % input.dim()]


def batch_norm_stats(input, axis, eps):
    """(mean, 1 / sqrt(variance + eps)) of each channel along `axis`.

    Both have shape (channels,).
    """
    variance, mean = torch.var_mean(input, _other(input, axis), unbiased=False)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(input, weight, bias, mean, invstd, axis, eps):
    """(input - mean) * invstd * weight + bias with one number of each per channel along `axis`; `eps` is
    already in invstd.

    The statistics and weights have shape (channels,); the result has the shape and dtype of the input.
    """
    mean, invstd, weight, bias = (_spread(t, input, axis) for t in (mean, invstd, weight, bias))
    return (input - mean) * invstd * weight + bias


def batch_norm_backward_reduce(grad_out, input, mean, invstd, axis):
    """(sum_dy, sum_dy_xmu, grad_weight, grad_bias) of each channel along `axis`."""
    dims = _other(input, axis)
    sum_dy = grad_out.sum(dims)
    sum_dy_xmu = (grad_out * (input - _spread(mean, input, axis))).sum(dims)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()


def batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count, axis):
    """The gradient of batch_norm_elemt's input, given the sums over all ranks; `count` holds the elements per
    channel of each rank.
    """
    total = count.sum()
    mean_dy, mean_dy_xmu = (_spread(t / total, input, axis) for t in (sum_dy, sum_dy_xmu))
    mean, invstd, weight = (_spread(t, input, axis) for t in (mean, invstd, weight))
    return (grad_out - mean_dy - (input - mean) * invstd * invstd * mean_dy_xmu) * invstd * weight


# --------------------------------------------------------------------------- global tensors
def to_global(x, placement=None, sbp=None, grad_sbp=None, check_meta=True, copy=False):
    """x.to_global(placement, sbp, grad_sbp=, check_meta=, copy=).

    The result has the global shape and the dtype of x; `Tensor.to_global` explains the arguments.
    """
    extra = {} if grad_sbp is None or grad_sbp == [] else {"grad_sbp": grad_sbp}
    return x.to_global(placement, sbp, check_meta=check_meta, copy=copy, **extra)


def to_local(x, copy=False):
    """The local shard of a global tensor.

    It has the dtype of the global tensor; its shape is that of the shard.
    """
    return x.to_local(copy=copy)
