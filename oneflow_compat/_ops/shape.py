"""Views and shapes: permutation lists, keyword names of splits, and functions torch has as methods only."""

from __future__ import annotations

import torch

from ._signature import REFUSED, documented, need_tensors, or_else, rename, spelled

__all__ = [
    "transpose",
    "squeeze",
    "hsplit",
    "vsplit",
    "tensor_split",
    "split",
    "flip",
    "expand",
    "repeat",
    "view",
    "contiguous",
    "broadcast_like",
    "broadcast_dim_like",
    "cast",
    "meshgrid",
    "repeat_interleave",
    "pad",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
]


@or_else(
    torch.transpose,
    "transpose",
    "(input, dim0=None, dim1=None, *, perm=None)",
    "torch.transpose of two dimensions, or torch.permute by the list `perm`.",
)
def transpose(error, *args, perm=None, **kwargs):
    if perm is None and len(args) == 2 and isinstance(args[1], (list, tuple)):
        args, perm = args[:1], args[1]
    if perm is None or not (args or kwargs.keys() & {"input", "x"}):
        return REFUSED
    return torch.permute(args[0] if args else kwargs.get("input", kwargs.get("x")), tuple(perm))


@or_else(
    torch.squeeze, "squeeze", "(input, dim=None)", "torch.squeeze; `dim=None` stands for all dimensions."
)
def squeeze(error, input=None, dim=None, *, x=None):
    input = x if input is None else input
    return torch.squeeze(input) if dim is None and isinstance(input, torch.Tensor) else REFUSED


def _pieces(name):
    target = getattr(torch, name)
    has_dim = name == "tensor_split"
    spelling = {
        "x": "input",
        **dict.fromkeys(("indices", "sections", "tensor_indices_or_sections"), "indices_or_sections"),
    }

    @documented(
        "(input, indices_or_sections, dim=0)" if has_dim else "(input, indices_or_sections)",
        name,
        f"torch.{name}; the second argument is called indices_or_sections in OneFlow, indices or sections in"
        " torch. The pieces are views.",
    )
    def call(*args, **kwargs):
        if kwargs:
            kwargs = rename(name, kwargs, spelling)
            if "indices_or_sections" in kwargs:
                args = (
                    (kwargs.pop("input"), kwargs.pop("indices_or_sections"))
                    if "input" in kwargs
                    else (args[0], kwargs.pop("indices_or_sections"), *args[1:])
                )
        return target(*args, **kwargs)

    return call


hsplit, vsplit, tensor_split = map(_pieces, ("hsplit", "vsplit", "tensor_split"))


@spelled("tensor=x input=x split_size=split_size_or_sections axis=dim")
def split(x, split_size_or_sections, dim=0):
    """torch.split; `x` is torch's `tensor`."""
    return torch.split(x, split_size_or_sections, dim)


@or_else(torch.flip, "flip", "(x, dims)", "torch.flip; `dims` may be one number.")
def flip(error, input=None, dims=None, *, x=None, **kwargs):
    input = x if input is None else input
    if isinstance(input, torch.Tensor) and isinstance(dims, int) and not kwargs:
        return torch.flip(input, (dims,))
    return REFUSED


def expand(input, *sizes):
    """input.expand(*sizes).

    torch.Tensor.expand: a view of the broadcast shape.
    """
    return input.expand(*sizes)


def repeat(input, repeat_shape):
    """input.repeat(repeat_shape)."""
    return input.repeat(repeat_shape)


def view(input, *shape):
    """input.view(*shape)."""
    return input.view(*shape)


def contiguous(input):
    """input.contiguous().

    torch.Tensor.contiguous: the input itself, or a copy in dense layout.
    """
    return input.contiguous()


def broadcast_like(x, like, broadcast_axes=()):
    """`x` expanded to the shape of `like`.

    `broadcast_axes` are the dimensions of the result along which x is repeated: those x lacks are put
    in, those it has with size 1 are expanded. Without it torch's broadcasting rules hold.
    """
    need_tensors("broadcast_like", x=x, like=like)
    axes = sorted(
        a % like.dim() for a in ([broadcast_axes] if isinstance(broadcast_axes, int) else broadcast_axes)
    )
    if axes and x.dim() + len(axes) == like.dim():
        for a in axes:
            x = x.unsqueeze(a)
    return x.expand(like.shape)


def broadcast_dim_like(input, like, dim, like_dim=None):
    """`input` with its dimension `dim` of size 1 expanded to the size of dimension `like_dim` (default:
    `dim`) of `like`.
    """
    size = list(input.shape)
    size[dim] = like.shape[dim if like_dim is None else like_dim]
    return input.expand(size)


def cast(x, dtype, pin_memory=False):
    """x.to(dtype)."""
    need_tensors("cast", x=x)
    y = x.to(dtype)
    return y.pin_memory() if pin_memory else y


def meshgrid(*tensors, indexing="ij"):
    """torch.meshgrid with the default spelled out: indexing='ij'."""
    return torch.meshgrid(*tensors, indexing=indexing)


@spelled("x=input axis=dim")
def repeat_interleave(input, repeats=None, dim=None, output_size=None):
    """torch.repeat_interleave, `output_size` also by position."""
    if repeats is None:
        return torch.repeat_interleave(input, output_size=output_size)
    return torch.repeat_interleave(input, repeats, dim, output_size=output_size)


def _at_least(name):
    target = getattr(torch, name)

    @documented(
        "(*args, input=None, tensors=None)",
        name,
        f"torch.{name}; one tensor, several, or a list of them; also by keyword, as input= or tensors=.",
    )
    def call(*args, **kwargs):
        return (
            target(*args, *kwargs.values())
            if kwargs.keys() <= {"input", "tensors"}
            else target(*args, **kwargs)
        )

    return call


atleast_1d, atleast_2d, atleast_3d = map(_at_least, ("atleast_1d", "atleast_2d", "atleast_3d"))


@spelled("input=x")
def pad(x, pad, mode="constant", value=0):
    """torch.nn.functional.pad; the other modes leave `value` aside."""
    return torch.nn.functional.pad(x, pad, mode, value if mode == "constant" else None)
