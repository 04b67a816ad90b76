"""oneDNN's LSTM layers for inductor: matrix products over all steps at once, and a kernel of oneflow._ext for
the recurrence.

oneDNN creates its primitives anew in each call and computes step by step, including the gradients of the
weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx.node import Target

_LSTM = 2  # the number of LSTM among at::native's modes
# hidden size: beyond, the weight leaves the cache (1.15 times the speed of oneDNN at 512, 0.93 at 1024)
_LARGEST = 640


def is_layer(target: Target) -> bool:
    """Whether an operator is a layer or its gradient, which must be compiled together.

    They share a workspace, and that of the layer here is not oneDNN's.
    """
    aten = torch.ops.aten
    return target in (aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default)


def _takes(input: torch.Tensor, mode: int, hidden_size: int, batch_sizes: list[int]) -> bool:
    return (
        mode == _LSTM
        and not batch_sizes
        and input.dtype is torch.float32
        and input.ndim == 3
        and hidden_size <= _LARGEST
    )


def layer(
    input: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor,
    b_hh: torch.Tensor,
    h0: torch.Tensor,
    c0: torch.Tensor,
    reverse: bool,
    batch_sizes: list[int],
    mode: int,
    hidden_size: int,
    *options: Any,
) -> tuple[torch.Tensor, ...]:
    """Compute aten::mkldnn_rnn_layer of an LSTM: (hidden states, last hidden state, last cell, workspace)."""
    _num_layers, has_biases, *_ = options
    if not _takes(input, mode, hidden_size, batch_sizes):
        return NotImplemented  # type: ignore[no-any-return]  # inductor then calls the kernel
    is_stacked = h0.ndim == 3  # the form recorded for a batch that is a symbol
    if is_stacked:
        h0, c0 = h0.reshape(h0.shape[-2:]), c0.reshape(c0.shape[-2:])
    steps, batch, width = input.shape
    flat = input.reshape(steps * batch, width)
    gates = torch.addmm(b_ih + b_hh, flat, w_ih.t()) if has_biases else flat @ w_ih.t()
    gates = gates.view(steps, batch, 4 * hidden_size)
    output, h, c, workspace = torch.ops.oneflow.lstm(gates, w_hh, h0, c0, reverse)
    return (output, h[None], c[None], workspace) if is_stacked else (output, h, c, workspace)


def layer_backward(
    input: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor,
    b_hh: torch.Tensor,
    h0: torch.Tensor,
    c0: torch.Tensor,
    output: torch.Tensor,
    hy: torch.Tensor,
    cy: torch.Tensor,
    grad_output: torch.Tensor | None,
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int],
    batch_first: bool,
    workspace: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Compute the layer's gradients: of the input, both weights, both biases and both states."""
    if not _takes(input, mode, hidden_size, batch_sizes):
        return NotImplemented  # type: ignore[no-any-return]  # inductor then calls the kernel
    is_stacked = h0.ndim == 3
    if is_stacked:
        h0, c0 = h0.reshape(h0.shape[-2:]), c0.reshape(c0.shape[-2:])
        grad_hy, grad_cy = (t if t is None else t.reshape(t.shape[-2:]) for t in (grad_hy, grad_cy))
    steps, batch, width = input.shape
    dgates, dh, dc = torch.ops.oneflow.lstm_backward(
        grad_output, grad_hy, grad_cy, workspace, c0, w_hh, reverse
    )
    rows = dgates.view(steps * batch, 4 * hidden_size)
    states = torch.cat([output[1:], h0[None]] if reverse else [h0[None], output[:-1]])
    states = states.view(steps * batch, hidden_size)
    dbias = rows.sum(0)
    return (
        (rows @ w_ih).view(steps, batch, width),
        rows.t() @ input.reshape(steps * batch, width),
        rows.t() @ states,
        dbias,
        dbias.clone(),  # a fresh buffer, because gradients are scaled in place
        dh[None] if is_stacked else dh,
        dc[None] if is_stacked else dc,
    )
