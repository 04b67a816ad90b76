"""Rotary embedding and attention operators against formulas in this file."""

import math

import numpy as np
import pytest
import torch
from kernel_cases import rand, with_and_without_kernels  # noqa: F401

import oneflow

C = oneflow._C


# --------------------------------------------------------------------------- rotary embedding
def turn(x, positions, size, mode, base=1e4):
    """x (..., K) at one position, element by element."""
    out = x.copy()
    for i in range(size // 2):
        a, b = (i, i + size // 2) if mode == "plane" else (2 * i, 2 * i + 1)
        angle = positions * base ** (-2 * i / size)
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return out


@pytest.mark.parametrize("mode", ["plane", "interval"])
@pytest.mark.parametrize("size", [None, 4])
def test_rotary_from_base(mode, size):
    x = rand(2, 3, 5, 8)
    actual = C.fused_apply_rotary_emb(x, mode=mode, rotary_size=size, base=100.0)
    expected = np.array(
        [
            [[turn(x[b, h, m].numpy(), m, size or 8, mode, 100.0) for m in range(5)] for h in range(3)]
            for b in range(2)
        ]
    )
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("mode", ["plane", "interval"])
def test_rotary_with_two_position_dimensions(mode):
    x, ids = rand(2, 3, 5, 8), torch.randint(0, 9, (2, 2, 5))
    actual = C.fused_apply_rotary_emb(x, position_ids=ids, mode=mode)
    for b in range(2):
        for m in range(5):
            row = x[b, 1, m].numpy()
            halves = [turn(row[4 * d : 4 * d + 4], int(ids[b, d, m]), 4, mode) for d in range(2)]
            np.testing.assert_allclose(actual[b, 1, m].numpy(), np.concatenate(halves), atol=1e-12)


def test_rotary_layouts_agree():
    x = rand(2, 3, 5, 8)
    expected = C.fused_apply_rotary_emb(x)
    assert torch.allclose(
        C.fused_apply_rotary_emb(x.permute(0, 2, 1, 3), x_layout="BMHK"), expected.permute(0, 2, 1, 3)
    )
    assert torch.allclose(
        C.fused_apply_rotary_emb(x, output_layout="MB(HK)"), expected.permute(2, 0, 1, 3).flatten(2)
    )
    merged = x.permute(2, 0, 1, 3).flatten(2)
    assert torch.allclose(
        C.fused_apply_rotary_emb(merged, x_layout="MB(HK)", k_size=8, output_layout="BHMK"), expected
    )
    # B M (H 3 K)
    packed = torch.stack([rand(2, 5, 3, 8), x.permute(0, 2, 1, 3), rand(2, 5, 3, 8)], 3).flatten(2)
    assert torch.allclose(
        C.fused_apply_rotary_emb(packed, x_layout="BM(H3K)", k_size=8, tensor_index=1, output_layout="BHMK"),
        expected,
    )
    pair = torch.stack([x.permute(0, 2, 1, 3), rand(2, 5, 3, 8)], 3).flatten(2)  # B M (H 2 K): key, value
    assert torch.allclose(
        C.fused_apply_rotary_emb(pair, x_layout="BM(H2K)", k_size=8, tensor_index=1, output_layout="BHMK"),
        expected,
    )


def test_rotary_tables_by_position():
    x, ids = rand(2, 3, 5, 4), torch.randint(0, 7, (2, 1, 5))
    cos, sin = rand(7, 4), rand(7, 4)
    actual = C.fused_apply_rotary_emb(x, cos=cos, sin=sin, position_ids=ids)
    c, s = (t[ids[:, 0]][:, None] for t in (cos, sin))
    a, b = x.chunk(2, -1)
    torch.testing.assert_close(actual, x * c + torch.cat((-b, a), -1) * s)
    with pytest.raises(RuntimeError, match=r"\(positions, 4\), found \(7, 3\)"):
        C.fused_apply_rotary_emb(x, cos=cos[:, :3], sin=sin[:, :3])


# --------------------------------------------------------------------------- attention
def attend(q, k, v, keep=None, bias=0.0, scale=None):
    """(M, K), (N, K), (N, V) of one head."""
    scores = q @ k.T * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    if keep is not None:
        scores = scores.masked_fill(~keep, -math.inf)
    return torch.softmax(scores, -1) @ v


def test_fused_self_attention():
    x = rand(5, 2, 3 * 3 * 4)  # S, B, heads * (q, k, v) * head size
    scores, values = C.fused_self_attention(x, head_size=4, alpha=0.5)
    assert scores.shape == (2, 3, 5, 5) and values.shape == (2, 3, 5, 4)
    head = x[:, 1, 12:24]
    torch.testing.assert_close(scores[1, 1], head[:, :4] @ head[:, 4:8].T * 0.5)
    assert torch.equal(values[1, 1], head[:, 8:])


@pytest.mark.parametrize("causal,offset", [(False, 0), (True, 0), (True, 2)])
def test_attention_inference(causal, offset):
    q, k, v, bias = rand(2, 5, 12), rand(2, 7, 12), rand(2, 7, 12), rand(5, 7)
    actual = C.fused_multi_head_attention_inference(
        q, k, v, 3, causal=causal, attn_bias=bias, causal_diagonal_offset=offset
    )
    keep = torch.ones(5, 7, dtype=torch.bool).tril(offset) if causal else None
    torch.testing.assert_close(
        actual[1, :, 4:8], attend(q[1, :, 4:8], k[1, :, 4:8], v[1, :, 4:8], keep, bias)
    )
    sliced = C.fused_multi_head_attention_inference(
        torch.cat((rand(2, 5, 4), q), 2), k, v, 3, query_hidden_slice_start=4
    )
    torch.testing.assert_close(sliced, C.fused_multi_head_attention_inference(q, k, v, 3))


def test_attention_v2_layouts_agree():
    q, k, v = rand(2, 5, 3, 4), rand(2, 7, 3, 4), rand(2, 7, 3, 4)  # BMHK
    expected = torch.stack(
        [torch.cat([attend(q[b, :, h], k[b, :, h], v[b, :, h]) for h in range(3)], 1) for b in range(2)]
    )
    run = C.fused_multi_head_attention_inference_v2
    torch.testing.assert_close(
        run(query=q, query_layout="BMHK", key=k, key_layout="BMHK", value=v, value_layout="BMHK"), expected
    )
    actual = run(
        query=q.permute(1, 0, 2, 3).flatten(2),
        query_layout="MB(HK)",
        query_head_size=4,
        key=k.permute(0, 2, 1, 3),
        key_layout="BHMK",
        value=v.flatten(2),
        value_layout="BM(HK)",
        output_layout="MB(HK)",
    )
    torch.testing.assert_close(actual, expected.transpose(0, 1))
    both = torch.stack((k, v), 3).flatten(2)  # B M (H 2 K)
    torch.testing.assert_close(
        run(query=q, query_layout="BMHK", key=both, key_layout="BM(H2K)", value=both, value_layout="BM(H2K)"),
        expected,
    )
    torch.testing.assert_close(run(query=q, query_layout="BMHK", key=both, key_layout="BM(H2K)"), expected)
    same = torch.stack((k, k, v), 3).flatten(2)  # B M (H 3 K)
    torch.testing.assert_close(
        run(query=same, query_layout="BM(H3K)", query_head_size=4, output_layout="BM(HK)"),
        run(query=k, query_layout="BMHK", key=k, key_layout="BMHK", value=v, value_layout="BMHK"),
    )


def test_attention_v2_masks():
    q, k, v = rand(2, 5, 1, 4), rand(2, 7, 1, 4), rand(2, 7, 1, 4)
    layouts = dict(query_layout="BMHK", key_layout="BMHK", value_layout="BMHK", query=q, key=k, value=v)
    run = C.fused_multi_head_attention_inference_v2
    for kind, diagonal in (("causal_from_top_left", 0), ("causal_from_bottom_right", 2)):
        keep = torch.ones(5, 7, dtype=torch.bool).tril(diagonal)
        torch.testing.assert_close(
            run(**layouts, attn_mask_type=kind)[0], attend(q[0, :, 0], k[0, :, 0], v[0, :, 0], keep)
        )
    actual = run(**layouts, key_seq_len=torch.tensor([3, 7]), scale=0.3)
    torch.testing.assert_close(actual[0], attend(q[0, :, 0], k[0, :3, 0], v[0, :3, 0], scale=0.3))
    torch.testing.assert_close(actual[1], attend(q[1, :, 0], k[1, :, 0], v[1, :, 0], scale=0.3))


def test_attention_v2_concatenated_sequences():
    lengths = [3, 0, 4]
    start = torch.tensor([0, 3, 3, 7])
    q, k, v = rand(7, 2, 4), rand(7, 2, 4), rand(7, 2, 4)
    actual = C.fused_multi_head_attention_inference_v2(
        query=q,
        query_layout="(BM)HK",
        query_seq_start=start,
        query_max_seq_len=4,
        key=k,
        key_layout="(BM)HK",
        key_seq_start=start,
        key_max_seq_len=4,
        value=v.flatten(1),
        value_layout="(BM)(HK)",
        output_layout="(BM)(HK)",
    )
    assert actual.shape == (7, 8)
    for at, n in zip(start, lengths):
        rows = slice(int(at), int(at) + n)
        if n:
            torch.testing.assert_close(actual[rows, 4:], attend(q[rows, 1], k[rows, 1], v[rows, 1]))


def test_concat_past_key_value():
    past, new = rand(2, 3, 4, 8), rand(5, 2, 24)  # BHMK and MB(HK)
    key, value = C.fused_attention_concat_past_key_value(
        past_key=past,
        past_key_layout="BHMK",
        past_value=past,
        past_value_layout="BHMK",
        key=new,
        key_layout="MB(HK)",
        value=new,
        value_layout="MB(HK)",
    )
    expected = torch.cat((past, new.reshape(5, 2, 3, 8).permute(1, 2, 0, 3)), 2)
    assert torch.equal(key, expected) and torch.equal(value, expected)
