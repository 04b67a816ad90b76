"""Resizing of images in plain torch, and its gradients, with the positions that eager's kernels compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# a tensor, or NotImplemented if inductor has to compile the operator as it is
Resized = Any


def linear(x: torch.Tensor, size: Sequence[int], align_corners: bool, *scales: float | None) -> torch.Tensor:
    from torch._decomp.decompositions import _upsample_linear

    per_dimension = [*scales, *[None] * (len(size) - len(scales))]
    resized: torch.Tensor = _upsample_linear(x, list(size), align_corners, per_dimension)
    return resized


def nearest_scales(
    scales: Sequence[float | None], shape: Sequence[int], size: Sequence[int], device: torch.device
) -> list[float | None]:
    """Return the scales that the CPU kernel for images uses. The kernel looks at the sizes before the scales:
    the same size, or twice the size. torch's decomposition (2.13) does not.
    """
    return [
        None if device.type == "cpu" and new in (old, 2 * old) else scale
        for scale, old, new in zip(scales, shape[2:], size)
    ]


def nearest(
    x: torch.Tensor, size: Sequence[int], height: float | None = None, width: float | None = None
) -> torch.Tensor:
    from torch._decomp.decompositions import _upsample_nearest

    scales = nearest_scales((height, width), x.shape, size, x.device)
    resized: torch.Tensor = _upsample_nearest(x, list(size), scales)
    return resized


def nearest_backward(
    grad: torch.Tensor,
    size: Sequence[int],
    shape: Sequence[int],
    height: float | None = None,
    width: float | None = None,
) -> Resized:
    """Use the locations that forward used. Inductor's own form (2.13) goes by the sizes alone, which differs
    from forward if a scale factor is not their quotient.
    """
    from torch._decomp.decompositions import _compute_upsample_nearest_indices

    scales = nearest_scales((height, width), shape, size, grad.device)
    if all(scale is None or scale * old == new for scale, old, new in zip(scales, shape[2:], size)):
        return NotImplemented
    out = grad.new_zeros(shape)
    return torch.ops.aten.index_put(
        out, [None, None, *_compute_upsample_nearest_indices(out, list(size), scales)], grad, True
    )


def cubic(
    x: torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    height: float | None = None,
    width: float | None = None,
) -> torch.Tensor:
    from torch._decomp.decompositions import upsample_bicubic2d_default

    resized: torch.Tensor = upsample_bicubic2d_default(x, size, align_corners, height, width)
    return resized


def bilinear_backward(
    grad: torch.Tensor,
    size: Sequence[int],
    shape: Sequence[int],
    align_corners: bool,
    height: float | None = None,
    width: float | None = None,
) -> Resized:
    if grad.device.type != "cpu":
        return NotImplemented
    if any(isinstance(n, torch.SymInt) for n in (*size, *shape)):
        return _transposed_bilinear(grad, size, shape, align_corners, (height, width))
    n, c, *image = shape  # the image is one slice of a volume, because that kernel has a C shim
    return torch.ops.aten.upsample_trilinear3d_backward(
        grad.unsqueeze(2), [1, *size], [n, c, 1, *image], align_corners, None, height, width
    ).squeeze(2)


def _transposed_bilinear(
    grad: torch.Tensor,
    size: Sequence[int],
    shape: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
) -> torch.Tensor:
    """Multiply by the matrices of the interpolation, because the kernels of the gradient take no symbols
    (torch 2.13).
    """
    gradient = grad.to(torch.promote_types(grad.dtype, torch.float32))
    rows, columns = (
        linear(_identity(old).to(gradient.dtype)[None], [new], align_corners, scale)[0]
        for old, new, scale in zip(shape[2:], size, scales)
    )
    return (rows @ gradient @ columns.t()).to(grad.dtype)


def _identity(size: int) -> torch.Tensor:
    """Return the identity matrix. torch.eye (2.13) takes no symbols."""
    index = torch.arange(size)
    return index[:, None] == index
