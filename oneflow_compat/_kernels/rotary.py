"""Rotary position embedding over attention layouts."""

from __future__ import annotations

import torch

from .._global.tensor import replicated_like
from . import _check, _ext, kernels
from . import layout as L

__all__ = ["fused_apply_rotary_emb"]


def _turned(x: torch.Tensor, mode: str) -> torch.Tensor:
    """The vector that sin multiplies: plane pairs i with i + K/2, interval pairs 2i with 2i + 1."""
    if mode == "plane":
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotate_ref(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mode: str) -> torch.Tensor:
    """x (B, M, H, K) turned by cos and sin (B or 1, M, R): the first R of K, the rest passed on."""
    size = cos.shape[-1]
    part, rest = x[..., :size], x[..., size:]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    out = part * cos + _turned(part, mode) * sin
    return torch.cat((out, rest), -1) if rest.shape[-1] else out


def angles(
    size: int, positions: torch.Tensor, base: float, mode: str, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of position * base ** (-2 i / size), (..., M, size)."""
    k = torch.arange(size, device=positions.device)
    i = k % (size // 2) if mode == "plane" else k // 2
    turn = positions[..., None].to(dtype) * replicated_like(base ** (-2.0 * i.to(dtype) / size), positions)
    return turn.cos(), turn.sin()


def fused_apply_rotary_emb(
    x: torch.Tensor,
    *,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    x_layout: str = "BHMK",
    output_layout: str | None = None,
    mode: str = "plane",
    tensor_index: int | None = None,
    k_size: int | None = None,
    base: float = 1e4,
    rotary_size: int | None = None,
) -> torch.Tensor:
    """x with each head turned by its position: x * cos + turned(x) * sin. Computed in float32 for 16-bit x.

    mode "plane" pairs the two halves, "interval" neighbours. cos and sin (positions, rotary_size / dims) come
    from `base`
    when not given. position_ids (B, dims, M), dims 1 or 2, default 0..M-1; with dims 2 each half of
    rotary_size has its own
    positions. Layouts in layout.py; a packed x gives the tensor `tensor_index` (0 query, 1 key, 2 value).

    RuntimeError if only one of cos and sin is given.
    """
    name = "fused_apply_rotary_emb"
    _check.one_of(name, "mode", mode, ("plane", "interval"))
    L.check(name, "x_layout", x_layout)
    if (cos is None) != (sin is None):
        raise RuntimeError(
            f"{name}: give cos and sin together, found {'no cos' if cos is None else 'no sin'}"
        )
    position_ids, dims = _positions(name, position_ids)
    if k_size is None and x_layout not in L.PLAIN:
        k_size = rotary_size or (cos.shape[-1] * dims if cos is not None else None)
    heads = L.split_heads(name, x, x_layout, k_size, tensor_index)
    size = heads.shape[-1] if rotary_size is None else rotary_size
    _check_size(name, heads, size, dims, cos, sin)
    cos, sin = _tables(heads, cos, sin, position_ids, size // dims, dims, base, mode)
    if output_layout is None:
        output_layout = x_layout.replace("H2K", "HK").replace("H3K", "HK")
    L.check(name, "output_layout", output_layout)
    if _ext.use(x) and heads.ndim == 4 and L.order(output_layout) is not None:
        return _kernel(heads, cos, sin, dims, mode, output_layout)
    out = _rotated(heads, cos, sin, size, dims, mode)
    return L.merge_heads(out.to(x.dtype), output_layout)


def _positions(name: str, position_ids: torch.Tensor | None) -> tuple[torch.Tensor | None, int]:
    """Return position_ids as (batch, dims, length), and dims."""
    if position_ids is None:
        return None, 1
    position_ids = position_ids[:, None] if position_ids.ndim == 2 else position_ids
    dims = position_ids.shape[1]
    if position_ids.ndim != 3 or dims not in (1, 2):
        raise RuntimeError(
            f"{name}: position_ids must be (batch, 1 or 2, length), found {tuple(position_ids.shape)}"
        )
    return position_ids, dims


def _check_size(
    name: str, heads: torch.Tensor, size: int, dims: int, cos: torch.Tensor | None, sin: torch.Tensor | None
) -> None:
    """Raise RuntimeError if rotary_size does not fit the heads, or cos and sin do not fit rotary_size."""
    if size > heads.shape[-1] or size % (2 * dims):
        raise RuntimeError(
            f"{name}: rotary_size must be a multiple of {2 * dims} and at most the head size"
            f" {heads.shape[-1]}, found {size}"
        )
    width = size // dims
    if (
        cos is not None
        and sin is not None
        and (cos.shape != sin.shape or cos.ndim != 2 or cos.shape[1] != width)
    ):
        raise RuntimeError(
            f"{name}: cos and sin must be (positions, {width}), found {tuple(cos.shape)} and"
            f" {tuple(sin.shape)}"
        )


def _rotated(
    heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, size: int, dims: int, mode: str
) -> torch.Tensor:
    """Return the rotated heads, in the dtype of cos."""
    if dims == 1:
        return rotate_ref(heads.to(cos.dtype), cos, sin, mode)
    halves = heads[..., :size].to(cos.dtype).chunk(2, -1)
    return torch.cat(
        [rotate_ref(h, c, s, mode) for h, c, s in zip(halves, cos.chunk(2, -1), sin.chunk(2, -1))]
        + [heads[..., size:].to(cos.dtype)],
        -1,
    )


def _kernel(
    heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dims: int, mode: str, output_layout: str
) -> torch.Tensor:
    out = kernels.run.rotary(heads, cos, sin, dims, mode == "interval", L.order(output_layout), False)
    return out.flatten(2) if output_layout.endswith("K)") else out


def _tables(
    x: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    part: int,
    dims: int,
    base: float,
    mode: str,
) -> tuple[torch.Tensor, ...]:
    """cos and sin of each position of x (B, M, H, K): (B or 1, M, dims * part), in the dtype to
    compute in.
    """
    work = torch.promote_types(x.dtype, torch.float32)
    if position_ids is None:
        if cos is not None and cos.shape[0] < x.shape[1]:
            raise RuntimeError(
                f"fused_apply_rotary_emb: cos and sin have {cos.shape[0]} positions, fewer than the length"
                f" {x.shape[1]}"
            )
        if cos is None or sin is None:
            cos, sin = angles(
                part, replicated_like(torch.arange(x.shape[1], device=x.device), x), base, mode, work
            )
        return cos[None, : x.shape[1]].to(work), sin[None, : x.shape[1]].to(work)
    if cos is None or sin is None:
        cos, sin = angles(part, position_ids, base, mode, work)
    else:
        cos, sin = cos[position_ids].to(work), sin[position_ids].to(work)
    return tuple(t.transpose(1, 2).flatten(2) for t in (cos, sin))
