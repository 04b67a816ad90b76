"""Views and shapes: permutation lists, keyword names of splits, and functions torch has as methods only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

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
def transpose(error: Exception, *args: Any, perm: Any = None, **kwargs: Any) -> Any:
    tensors = args[:1]
    if perm is None and len(args) == 2 and isinstance(args[1], (list, tuple)):
        perm = args[1]
    if perm is None or not (tensors or kwargs.keys() & {"input", "x"}):
        return REFUSED
    return torch.permute(tensors[0] if tensors else kwargs.get("input", kwargs.get("x")), tuple(perm))


@or_else(
    torch.squeeze, "squeeze", "(input, dim=None)", "torch.squeeze; `dim=None` stands for all dimensions."
)
def squeeze(error: Exception, input: Any = None, dim: int | None = None, *, x: Any = None) -> Any:
    input = x if input is None else input
    return torch.squeeze(input) if dim is None and isinstance(input, torch.Tensor) else REFUSED


def _pieces(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
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
    def call(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
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
def split(
    x: torch.Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[torch.Tensor, ...]:
    """torch.split; `x` is torch's `tensor`."""
    return torch.split(x, split_size_or_sections, dim)


@or_else(torch.flip, "flip", "(x, dims)", "torch.flip; `dims` may be one number.")
def flip(error: Exception, input: Any = None, dims: Any = None, *, x: Any = None, **kwargs: Any) -> Any:
    input = x if input is None else input
    if isinstance(input, torch.Tensor) and isinstance(dims, int) and not kwargs:
        return torch.flip(input, (dims,))
    return REFUSED


def expand(input: torch.Tensor, *sizes: int | Sequence[int]) -> torch.Tensor:
    """input.expand(*sizes).

    torch.Tensor.expand: a view of the broadcast shape.
    """
    return input.expand(*sizes)


def repeat(input: torch.Tensor, repeat_shape: Sequence[int]) -> torch.Tensor:
    """input.repeat(repeat_shape)."""
    return input.repeat(repeat_shape)


def view(input: torch.Tensor, *shape: int | Sequence[int]) -> torch.Tensor:
    """input.view(*shape)."""
    return input.view(*shape)


def contiguous(input: torch.Tensor) -> torch.Tensor:
    """input.contiguous().

    torch.Tensor.contiguous: the input itself, or a copy in dense layout.
    """
    return input.contiguous()


def broadcast_like(
    x: torch.Tensor, like: torch.Tensor, broadcast_axes: int | Sequence[int] = ()
) -> torch.Tensor:
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


def broadcast_dim_like(
    input: torch.Tensor, like: torch.Tensor, dim: int, like_dim: int | None = None
) -> torch.Tensor:
    """`input` with its dimension `dim` of size 1 expanded to the size of dimension `like_dim` (default:
    `dim`) of `like`.
    """
    size = list(input.shape)
    size[dim] = like.shape[dim if like_dim is None else like_dim]
    return input.expand(size)


def cast(x: torch.Tensor, dtype: torch.dtype, pin_memory: bool = False) -> torch.Tensor:
    """x.to(dtype)."""
    need_tensors("cast", x=x)
    y = x.to(dtype)
    return y.pin_memory() if pin_memory else y


def meshgrid(*tensors: torch.Tensor, indexing: Literal["ij", "xy"] = "ij") -> tuple[torch.Tensor, ...]:
    """torch.meshgrid with the default spelled out: indexing='ij'."""
    return torch.meshgrid(*tensors, indexing=indexing)


@spelled("x=input axis=dim")
def repeat_interleave(
    input: torch.Tensor,
    repeats: int | torch.Tensor | None = None,
    dim: int | None = None,
    output_size: int | None = None,
) -> torch.Tensor:
    """torch.repeat_interleave, `output_size` also by position."""
    if repeats is None:
        return torch.repeat_interleave(input, output_size=output_size)
    return torch.repeat_interleave(input, repeats, dim, output_size=output_size)


def _at_least(name: str) -> Callable[..., Any]:
    target = getattr(torch, name)

    @documented(
        "(*args, input=None, tensors=None)",
        name,
        f"torch.{name}; one tensor, several, or a list of them; also by keyword, as input= or tensors=.",
    )
    def call(*args: Any, **kwargs: Any) -> Any:
        return (
            target(*args, *kwargs.values())
            if kwargs.keys() <= {"input", "tensors"}
            else target(*args, **kwargs)
        )

    return call


atleast_1d, atleast_2d, atleast_3d = map(_at_least, ("atleast_1d", "atleast_2d", "atleast_3d"))


@spelled("input=x")
def pad(x: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0) -> torch.Tensor:
    """torch.nn.functional.pad; the other modes leave `value` aside."""
    return torch.nn.functional.pad(x, pad, mode, value if mode == "constant" else None)
