"""Attention layouts: strings of B (batch), M (sequence), H (heads), K (head size) and packed forms.

"BMHK", "MBHK", "BHMK", "BHKM"; "BM(HK)", "MB(HK)" merge heads and head size; "(H2K)" and "(H3K)" also pack
key and value, or query, key and value; "(BM)..." concatenates sequences of unequal length, whose starts a
seq_start tensor gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

PLAIN = ("BMHK", "MBHK", "BHMK", "BHKM")
MERGED = tuple(f"{lead}{tail}" for lead in ("BM", "MB", "(BM)") for tail in ("(HK)", "(H2K)", "(H3K)")) + (
    "(BM)HK",
)
LAYOUTS = PLAIN + MERGED


def check(name: str, argument: str, layout: str) -> str:
    if layout not in LAYOUTS:
        raise ValueError(f"{name}: {argument} must be one of {', '.join(LAYOUTS)}, found {layout!r}")
    return layout


def packed(layout: str) -> int:
    """How many tensors share the last dimension: 1, 2 (H2K) or 3 (H3K)."""
    return 3 if "3" in layout else 2 if "2" in layout else 1


def split_heads(
    name: str, x: torch.Tensor, layout: str, head_size: int | None, index: int | None
) -> torch.Tensor:
    """x as (B, M, H, K), or (BM, H, K) for a concatenated layout; a view where the layout allows it."""
    need = 4 if layout in PLAIN else 2 + (not layout.startswith("(BM)")) if layout.endswith(")") else 3
    if x.ndim != need:
        raise RuntimeError(
            f"{name}: a tensor in layout {layout!r} has {need} dimensions, found shape {tuple(x.shape)}"
        )
    if layout.endswith("K)"):
        n = packed(layout)
        if head_size is None:
            raise RuntimeError(f"{name}: layout {layout!r} needs the head size")
        if x.shape[-1] % (n * head_size):
            raise RuntimeError(
                f"{name}: the last dimension {x.shape[-1]} of layout {layout!r} must be a multiple of {n} *"
                f" head size {head_size}"
            )
        if n > 1 and index is None:
            raise RuntimeError(f"{name}: layout {layout!r} packs {n} tensors; tell which by tensor_index")
        part = 0 if n == 1 or index is None else index - (3 - n)
        x = x.unflatten(-1, (-1, n, head_size))[..., part, :]
        layout = layout[: layout.rindex("(")] + "HK"
    if layout == "(BM)HK":
        return x
    return x.permute([layout.index(c) for c in "BMHK"])


def merge_heads(x: torch.Tensor, layout: str) -> torch.Tensor:
    """(B, M, H, K), or (BM, H, K) for a concatenated layout, in `layout`. The result is contiguous."""
    if layout == "(BM)HK":
        return x.contiguous()
    if layout == "(BM)(HK)":
        return x.flatten(-2)
    if layout in PLAIN:
        return x.permute(["BMHK".index(c) for c in layout]).contiguous()
    return (x.transpose(0, 1) if layout.startswith("MB") else x).flatten(-2).contiguous()


def order(layout: str) -> Sequence[int] | None:
    """The dimensions of (B, M, H, K) in the order `layout` keeps them in memory, K last; None where the
    layout has no such order.
    """
    plain = layout.replace("(HK)", "HK")
    return ["BMHK".index(c) for c in plain] if plain in ("BMHK", "MBHK", "BHMK") else None


def pad_sequences(
    x: torch.Tensor, start: torch.Tensor, longest: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(BM, H, K) with starts [B + 1] as (B, longest, H, K) padded by zeros, and the lengths [B]."""
    lengths = start[1:] - start[:-1]
    rows = torch.arange(longest if longest is not None else int(lengths.max()), device=x.device)
    at = (start[:-1, None] + rows).clamp_max(max(x.shape[0] - 1, 0))
    inside = rows < lengths[:, None]
    return x[at] * inside[..., None, None].to(x.dtype), lengths
