"""Gradients of prod() and cumprod() by eager's formulas.

torch branches on zeros in the input, and takes another formula for symbolic tensors, which rounds otherwise.
"""

from __future__ import annotations

from typing import Any

import torch


class Prod(torch.autograd.Function):
    """prod() whose gradient selects, as eager's prod_backward branches on zeros in the input.

    Eager divides the result by the input if no element is zero. A symbolic tensor has no values, so torch
    records the general formula, which rounds otherwise.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        result = torch.prod(x, **options)
        ctx.dim, ctx.keepdim = options.get("dim"), options.get("keepdim", False)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        x, result = ctx.saved_tensors
        values, dim = x.to(grad.dtype), ctx.dim
        if x.dim() == 0:
            return grad.to(x.dtype), None
        if dim is not None and not ctx.keepdim:
            grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
        zeros = (values == 0).sum()
        if dim is None:
            flat = values.contiguous().view(-1)
            general = _gradient_of_products(grad, flat, 0).view_as(values)
            general = torch.where(zeros > 1, torch.zeros_like(values), general)
        else:
            general = _gradient_of_products(grad, values, dim)
        return torch.where(zeros == 0, grad * (result / values).conj(), general).to(x.dtype), None


class Cumprod(torch.autograd.Function):
    """cumprod() whose gradient selects, as eager's cumprod_backward branches on zeros in the input.

    Before 2.13, torch records another formula for symbolic tensors, which rounds otherwise and takes a
    number of operators that grows with the size.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        result = torch.cumprod(x, **options)
        ctx.options = options
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        x, result = ctx.saved_tensors
        dim = ctx.options["dim"]
        grad = grad.to(x.dtype)
        if x.numel() <= 1 or x.shape[dim] == 1:
            return grad, None
        result = result.conj()
        zeros = (x == 0).cumsum(dim)
        before = _reversed_cumsum((result * grad).masked_fill(zeros != 0, 0.0), dim).div(x.conj())
        at_zero = _gradient_at_first_zeros(grad, x.conj(), result, zeros, dim)
        is_first_zero = (zeros == 1) & (x == 0)
        return torch.where(is_first_zero, at_zero, before.masked_fill(zeros != 0, 0.0)).to(x.dtype), None


def _reversed_cumsum(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.flip(dim).cumsum(dim).flip(dim)


def _gradient_at_first_zeros(
    grad: torch.Tensor, x: torch.Tensor, result: torch.Tensor, zeros: torch.Tensor, dim: int
) -> torch.Tensor:
    """Return the gradient of cumprod() at the first zero of each row.

    `zeros` counts the zeros of a row up to each element.
    """
    reached = zeros == 1
    first = reached.max(dim, keepdim=True)[1]
    after = reached & (x != 0)
    products = x.masked_fill(~after, 1.0).cumprod(dim) * grad.masked_fill(~reached, 0.0)
    preceding = result.gather(dim, (first - 1).relu()).masked_fill(first == 0, 1.0)
    return products.sum(dim, keepdim=True) * preceding


def _gradient_of_products(grad: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return grad times the product of the other elements: torch's prod_safe_zeros_backward."""
    size = x.shape[dim]
    if size <= 1:
        return grad.expand_as(x)
    ones = torch.ones_like(x.narrow(dim, 0, 1))
    before = torch.cat([ones, x.narrow(dim, 0, size - 1)], dim).cumprod(dim)
    after = torch.cat([ones, x.narrow(dim, 1, size - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return grad * (before * after).conj()
