"""LSTM, GRU and RNN layers on a GPU: torch's C++ looks at the memory of their weights, which symbolic tensors do not have.

While build() is captured they are called as the operator that C++ ends in. Without the flattened weights it copies them into one
buffer in each call, so the program does not depend on where they lie.
"""
from __future__ import annotations

import contextlib

import torch

aten = torch.ops.aten
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}  # cudnnRNNMode_t
_dropout_states: dict = {}


@contextlib.contextmanager
def recurrent_layers(active):
    """Replaces what torch.nn's recurrent layers call, for inputs that cuDNN takes."""
    original, flatten = {name: getattr(torch._VF, name) for name in _MODES}, torch.nn.RNNBase.flatten_parameters

    def layer(name):
        def call(input, *args):
            if not active() or not torch.cudnn_is_acceptable(input):
                return original[name](input, *args)
            packed = isinstance(args[0], torch.Tensor) if name == "lstm" else isinstance(args[1], torch.Tensor)
            if not packed:
                return _layer(name, input, (), *args)
            sizes, *rest = args
            return _layer(name, input, sizes.tolist(), *rest, False)

        return call

    for name in _MODES:
        setattr(torch._VF, name, layer(name))
    torch.nn.RNNBase.flatten_parameters = lambda self: None if active() else flatten(self)
    try:
        yield
    finally:
        torch.nn.RNNBase.flatten_parameters = flatten
        for name in _MODES:
            delattr(torch._VF, name)


def _layer(name, input, sizes, hx, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    h, c = hx if name == "lstm" else (hx, None)
    hidden, projected = (h.shape[2], 0) if c is None or c.shape[2] == h.shape[2] else (c.shape[2], h.shape[2])
    device, per_layer = input.device, (4 if has_biases else 2) + bool(projected)
    state = _dropout_state(dropout, device) if dropout and train else None
    if torch.is_autocast_enabled("cuda"):  # to float16, whatever autocast's type is, as torch does
        input, h, c, *weights = (t if t is None or t.dtype is torch.float64 else t.to(torch.float16) for t in (input, h, c, *weights))
    with torch.autocast("cuda", enabled=False):
        x = input.transpose(0, 1) if batch_first else input
        out, h, c, *_ = torch._cudnn_rnn(
            x, list(weights), per_layer, None, h, c, _MODES[name], hidden, projected, layers, False, dropout, train, bidirectional, list(sizes), state
        )
    out = out.transpose(0, 1) if batch_first else out
    return (out, h, c) if name == "lstm" else (out, h)


def _dropout_state(dropout, device):
    """The state of cuDNN's own generator, which its kernels write: one for each device, begun with torch's seed."""
    from .capture import outside_capture

    if device not in _dropout_states:
        with outside_capture():
            _dropout_states[device] = torch._cudnn_init_dropout_state(dropout, True, torch.cuda.initial_seed(), dtype=torch.uint8, device=device)
    return _dropout_states[device]


def symbolic_results(func, args):
    """What the operator and its gradient give, where torch has no symbolic form or one without the weights' buffer; None for others."""
    if func is aten._cudnn_rnn.default:
        x, weights, _, _, h, c, _, hidden, projected, layers, batch_first, _, _, bidirectional, sizes, _ = args
        directions, batch = 2 if bidirectional else 1, sizes[0] if sizes else x.shape[0 if batch_first else 1]
        out = x.new_empty((*x.shape[:-1], (projected or hidden) * directions))
        last = h.new_empty((layers * directions, batch, projected or hidden))
        cell = x.new_empty(0) if c is None else c.new_empty((layers * directions, batch, hidden))
        return out, last, cell, x.new_empty(0, dtype=torch.uint8), x.new_empty(sum(w.numel() for w in weights))
    if func is aten._cudnn_rnn_backward.default:
        x, weights, _, _, h, c, *_ , mask = args
        return *(None if t is None else t.new_empty(t.shape) for t in (x, h, c)), [w.new_empty(w.shape) for w in weights] if mask[3] else []
    return None
