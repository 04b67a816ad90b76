"""Attention: packed QKV, inference kernels over many layouts, the key/value cache.

The products and the softmax are torch's scaled_dot_product_attention; this file adds the layouts and the
masks. Rotary embedding is in rotary.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from . import _check
from . import layout as L

__all__ = [
    "fused_attention_concat_past_key_value",
    "fused_codegeex_qkv_reshape",
    "fused_multi_head_attention_inference",
    "fused_multi_head_attention_inference_v2",
    "fused_self_attention",
]


def fused_self_attention(
    hidden_states: torch.Tensor, head_size: int = 8, alpha: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(alpha * Q @ K^T of shape (B, H, S, S), V of shape (B, H, S, head_size)) of packed (S, B, H * 3 *
    head_size).

    RuntimeError for hidden_states of another shape.
    """
    if hidden_states.ndim != 3 or hidden_states.shape[-1] % (3 * head_size):
        raise RuntimeError(
            f"fused_self_attention: hidden_states must be (seq, batch, heads * 3 * {head_size}), found"
            f" {tuple(hidden_states.shape)}"
        )
    q, k, v = hidden_states.unflatten(-1, (-1, 3, head_size)).permute(3, 1, 2, 0, 4)
    return torch.matmul(q * alpha, k.mT), v.contiguous()


def fused_multi_head_attention_inference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    num_heads: int,
    causal: bool = False,
    query_hidden_slice_start: int = 0,
    query_hidden_slice_end: int = -1,
    key_hidden_slice_start: int = 0,
    key_hidden_slice_end: int = -1,
    value_hidden_slice_start: int = 0,
    value_hidden_slice_end: int = -1,
    attn_bias: torch.Tensor | None = None,
    causal_diagonal_offset: int = 0,
) -> torch.Tensor:
    """Attention of (B, M, hidden) tensors, each cut to its hidden slice and split into num_heads; no
    gradient.

    `causal` keeps keys up to query + causal_diagonal_offset. attn_bias is added to the scaled scores.

    RuntimeError if a hidden slice does not split into `num_heads` heads.
    """

    def cut(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        end = x.shape[-1] if end == -1 else end
        x = x[..., start:end]
        if x.shape[-1] % num_heads:
            raise RuntimeError(
                f"fused_multi_head_attention_inference: a hidden slice of {x.shape[-1]} does not split into"
                f" {num_heads} heads"
            )
        return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    with torch.no_grad():
        q = cut(query, query_hidden_slice_start, query_hidden_slice_end)
        k = cut(key, key_hidden_slice_start, key_hidden_slice_end)
        v = cut(value, value_hidden_slice_start, value_hidden_slice_end)
        mask = _mask(
            q,
            k,
            attn_bias,
            _diagonal("causal_from_top_left" if causal else "none", q, k, causal_diagonal_offset),
            None,
        )
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(-2)


_MASKS = ("none", "causal_from_top_left", "causal_from_bottom_right")


def fused_multi_head_attention_inference_v2(
    *,
    query: torch.Tensor,
    query_layout: str,
    query_head_size: int | None = None,
    query_seq_start: torch.Tensor | None = None,
    query_max_seq_len: int | None = None,
    key: torch.Tensor | None = None,
    key_layout: str | None = None,
    key_seq_start: torch.Tensor | None = None,
    key_seq_len: torch.Tensor | None = None,
    key_max_seq_len: int | None = None,
    value: torch.Tensor | None = None,
    value_layout: str | None = None,
    attn_bias: torch.Tensor | None = None,
    output_layout: str = "BM(HK)",
    scale: float | None = None,
    causal: bool | None = None,
    attn_mask_type: str | None = None,
    causal_diagonal_offset: int = 0,
) -> torch.Tensor:
    """Attention over layouts (layout.py), no gradient.

    A missing key or value is packed in the query's or the key's tensor.

    `scale` is 1/sqrt(K) by default; attn_mask_type is none, causal_from_top_left or causal_from_bottom_right
    (`causal` is the old spelling of the first causal one); key_seq_len [B] masks keys from that position on.
    """
    name = "fused_multi_head_attention_inference_v2"
    attn_mask_type = _mask_type(name, attn_mask_type, causal)
    key, key_layout = (query, query_layout) if key is None else (key, key_layout or query_layout)
    value, value_layout = (key, key_layout) if value is None else (value, value_layout or key_layout)
    _check_layouts(
        name,
        query_layout=query_layout,
        key_layout=key_layout,
        value_layout=value_layout,
        output_layout=output_layout,
    )
    if query_head_size is None and not query_layout.endswith(")"):
        query_head_size = query.shape[query_layout.replace("(BM)", "X").index("K")]
    with torch.no_grad():
        q = L.split_heads(name, query, query_layout, query_head_size, 0)
        k = L.split_heads(name, key, key_layout, query_head_size, 1)
        v = L.split_heads(
            name,
            value,
            value_layout,
            None if value_layout in L.PLAIN else _value_size(value, value_layout, q, query_head_size),
            2,
        )
        if q.ndim == 3:
            q, _ = L.pad_sequences(q, _starts(name, "query_seq_start", query_seq_start), query_max_seq_len)
        if k.ndim == 3:
            start = _starts(name, "key_seq_start", _or(key_seq_start, query_seq_start))
            k, v, lengths = _padded(k, v, start, _or(key_max_seq_len, query_max_seq_len))
            key_seq_len = _or(key_seq_len, lengths)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        diagonal = _diagonal(attn_mask_type, q, k, causal_diagonal_offset)
        mask = _mask(q, k, attn_bias, diagonal, key_seq_len)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2)
        if output_layout.startswith("(BM)"):
            lengths = _starts(name, "query_seq_start", query_seq_start).diff()
            out = out[torch.arange(out.shape[1], device=out.device) < lengths[:, None]]
        return L.merge_heads(out, output_layout)


def _check_layouts(name: str, **layouts: str) -> None:
    for argument, layout in layouts.items():
        L.check(name, argument, layout)


def _mask_type(name: str, attn_mask_type: str | None, causal: bool | None) -> str:
    """Return the kind of mask, given by its name or by OneFlow's older `causal`."""
    if attn_mask_type is None:
        return "causal_from_top_left" if causal else "none"
    _check.one_of(name, "attn_mask_type", attn_mask_type, _MASKS)
    return attn_mask_type


def _or(value: _check.Value | None, default: _check.Value) -> _check.Value:
    return default if value is None else value


def _padded(
    key: torch.Tensor, value: torch.Tensor, start: torch.Tensor, longest: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return concatenated keys and values as padded batches, and the lengths of the sequences."""
    key, lengths = L.pad_sequences(key, start, longest)
    return key, L.pad_sequences(value, start, longest)[0], lengths


def _value_size(value: torch.Tensor, layout: str, q: torch.Tensor, head_size: int | None) -> int | None:
    """The head size of a merged value: the query's when packed with it, else what the number of
    heads leaves.
    """
    return head_size if L.packed(layout) > 1 else value.shape[-1] // q.shape[-2]


def _starts(name: str, argument: str, start: torch.Tensor | None) -> torch.Tensor:
    if start is None:
        raise RuntimeError(f"{name}: a concatenated layout '(BM)...' needs {argument}, found None")
    return start


def _diagonal(mask_type: str, q: torch.Tensor, k: torch.Tensor, offset: int) -> int | None:
    if mask_type == "none":
        return None
    return offset if mask_type == "causal_from_top_left" else offset + k.shape[-2] - q.shape[-2]


def _mask(
    q: torch.Tensor,
    k: torch.Tensor,
    bias: torch.Tensor | None,
    diagonal: int | None,
    key_seq_len: torch.Tensor | None,
) -> torch.Tensor | None:
    """None, or what is added to the scores (B, H, M, N)."""
    keep = None
    if diagonal is not None:
        keep = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(diagonal)
    if key_seq_len is not None:
        inside = (torch.arange(k.shape[-2], device=q.device) < key_seq_len.reshape(-1, 1))[:, None, None]
        keep = inside if keep is None else keep & inside
    if bias is None:
        return keep
    bias = bias[None] if bias.ndim == 1 else bias
    bias = bias.to(q.dtype)
    return bias if keep is None else torch.where(keep, bias, float("-inf"))


def fused_attention_concat_past_key_value(
    *,
    past_key: torch.Tensor | None = None,
    past_key_layout: str,
    past_value: torch.Tensor | None = None,
    past_value_layout: str,
    key: torch.Tensor,
    key_layout: str,
    value: torch.Tensor,
    value_layout: str,
    key_head_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(past_key + key, past_value + value) joined along the sequence, in the past's layouts.

    Without a past: key and value, converted.

    RuntimeError if only one of past_key and past_value is given.
    """
    name = "fused_attention_concat_past_key_value"
    if (past_key is None) != (past_value is None):
        raise RuntimeError(
            f"{name}: give past_key and past_value together, found"
            f" {'no past_key' if past_key is None else 'no past_value'}"
        )

    def join(
        past: torch.Tensor | None, past_layout: str, new: torch.Tensor, new_layout: str, index: int
    ) -> torch.Tensor:
        for layout in (past_layout, new_layout):
            L.check(name, "layout", layout)
        size = key_head_size
        if size is None:
            size = next(
                (
                    t.shape[layout.index("K")]
                    for t, layout in ((past, past_layout), (new, new_layout))
                    if t is not None and layout in L.PLAIN
                ),
                None,
            )
        new = L.split_heads(name, new, new_layout, size, index)
        if past is not None:
            new = torch.cat([L.split_heads(name, past, past_layout, size, index), new], 1)
        return L.merge_heads(new, past_layout)

    return (
        join(past_key, past_key_layout, key, key_layout, 1),
        join(past_value, past_value_layout, value, value_layout, 2),
    )


def fused_codegeex_qkv_reshape(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, num_attention_heads: int
) -> tuple[torch.Tensor, ...]:
    """Each (..., hidden) as (..., heads, hidden / heads), contiguous.

    The three results have the dtype of their inputs.
    """
    return tuple(t.unflatten(-1, (num_attention_heads, -1)).contiguous() for t in (query, key, value))
