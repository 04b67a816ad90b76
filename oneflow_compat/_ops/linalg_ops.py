"""Products with OneFlow's transpose and scale arguments and mixed dtypes; oneflow.linalg's
positional dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._signature import REFUSED, or_else, spelled
from .tensor.replacing import promoted

__all__ = [
    "matmul",
    "bmm",
    "addmm",
    "mm",
    "dot",
    "norm",
    "vector_norm",
    "matrix_norm",
    "cross",
    "cross_any",
    "diagonal",
    "inv",
]


def _product(
    target: Callable[..., Any],
    name: str,
    signature: str,
    a_name: str,
    b_name: str,
    others: Sequence[tuple[str, str]],
) -> Callable[..., torch.Tensor]:
    @or_else(
        target,
        name,
        signature,
        f"torch.{name}; the factors may be transposed (last two dimensions), scaled by `alpha`, and of"
        " different dtypes.",
    )
    def slow(
        error: Exception,
        a: Any = None,
        b: Any = None,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1.0,
        *,
        out: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        for ours, theirs in others:
            kwargs = {ours if k == theirs else k: v for k, v in kwargs.items()}
        a, b = kwargs.pop(a_name, a), kwargs.pop(b_name, b)
        if kwargs or not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return REFUSED
        same = promoted(a, b)
        if same is None and not (transpose_a or transpose_b) and alpha == 1.0:
            # only the spelling was OneFlow's, or the call is wrong and torch's error explains it
            return target(a, b) if out is None else target(a, b, out=out)
        a, b = same or (a, b)
        y = target(_transposed(a, transpose_a), _transposed(b, transpose_b))
        y = y if alpha == 1.0 else y * alpha
        return y if out is None else out.copy_(y)

    return slow


def _transposed(tensor: torch.Tensor, transpose: bool) -> torch.Tensor:
    return tensor.transpose(-2, -1) if transpose else tensor


matmul = _product(
    torch.matmul,
    "matmul",
    "(input, other, transpose_a=False, transpose_b=False, alpha=1.0, *, out=None)",
    "input",
    "other",
    [("input", "x")],
)
bmm = _product(
    torch.bmm,
    "bmm",
    "(a, b, transpose_a=False, transpose_b=False, alpha=1.0, *, out=None)",
    "a",
    "b",
    [("a", "input"), ("a", "x"), ("b", "mat2")],
)


def _mixed(target: Callable[..., Any], name: str, second: str) -> Callable[..., torch.Tensor]:
    @or_else(
        target,
        name,
        f"(input, {second}, *, out=None)",
        f"torch.{name}; the factors may be of different dtypes.",
    )
    def slow(
        error: Exception, input: Any = None, b: Any = None, *, out: torch.Tensor | None = None, **kwargs: Any
    ) -> Any:
        input, b = kwargs.pop("x", input), kwargs.pop(second, b)
        same = (
            promoted(input, b)
            if isinstance(input, torch.Tensor) and isinstance(b, torch.Tensor) and not kwargs
            else None
        )
        if same is None:
            return REFUSED
        return target(*same) if out is None else out.copy_(target(*same))

    return slow


mm = _mixed(torch.mm, "mm", "mat2")


@spelled("x=input tensor=other")
def dot(input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """torch.dot; `other` is torch's `tensor`."""
    return torch.dot(input, other) if out is None else torch.dot(input, other, out=out)


@spelled("x=input")
def addmm(
    input: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    alpha: float = 1,
    beta: float = 1,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """beta * input + alpha * (mat1 @ mat2), of different dtypes too; alpha and beta also by position, in
    OneFlow's order.
    """
    input, mat1, mat2 = promoted(input, mat1, mat2) or (input, mat1, mat2)
    return (
        torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
        if out is None
        else torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha, out=out)
    )


# --------------------------------------------------------------------------- oneflow.linalg; OneFlow calls
# the matrix `self`
@spelled("A=self input=self x=self")
def norm(
    self: torch.Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.linalg.norm, `dtype` also by position, "fro" of a tensor of any number of dimensions."""
    if ord == "fro" and dim is None and self.dim() != 2:
        ord = None
    return torch.linalg.norm(self, ord, dim, keepdim, dtype=dtype, out=out)


@spelled("A=self input=self x=self")
def vector_norm(
    self: torch.Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.linalg.vector_norm, `dtype` also by position."""
    return torch.linalg.vector_norm(self, ord, dim, keepdim, dtype=dtype, out=out)


@spelled("A=self input=self x=self")
def matrix_norm(
    self: torch.Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.linalg.matrix_norm, `dtype` also by position."""
    return torch.linalg.matrix_norm(self, ord, dim, keepdim, dtype=dtype, out=out)


def cross(
    input: torch.Tensor, other: torch.Tensor, dim: int = -1, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """torch.linalg.cross, `dim` also by position, of tensors that broadcast."""
    return torch.linalg.cross(*torch.broadcast_tensors(input, other), dim=dim, out=out)


@or_else(
    torch.cross,
    "cross",
    "(input, other, dim=None, *, out=None)",
    "torch.cross, also of tensors that broadcast; without `dim` the first dimension of size 3.",
)
def cross_any(
    error: Exception, input: Any = None, other: Any = None, dim: int | None = None, **kwargs: Any
) -> Any:
    if (
        not isinstance(input, torch.Tensor)
        or not isinstance(other, torch.Tensor)
        or input.shape == other.shape
    ):
        return REFUSED
    return torch.cross(*torch.broadcast_tensors(input, other), *() if dim is None else (dim,), **kwargs)


@spelled("A=input x=input self=input")
def diagonal(input: torch.Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> torch.Tensor:
    """torch.linalg.diagonal, every argument also by position; a view."""
    return torch.diagonal(input, offset, dim1, dim2)


@spelled("A=self input=self x=self")
def inv(self: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """torch.linalg.inv."""
    return torch.linalg.inv(self, out=out)
