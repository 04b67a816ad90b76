"""LSTM, GRU and RNN layers while build() is captured.

On a GPU, torch's C++ code reads the memory of the weights, which symbolic tensors do not have. So the layers
are recorded as the operator in which that code ends. Without flattened weights the operator copies them into
one buffer in each call, so the program does not depend on their memory.

On the CPU, torch runs GRU and RNN layers step by step. Without gradients a layer is recorded as one call.
With gradients its steps are recorded, as autograd sees them, and marked: a backend may have a kernel for the
whole layer (compile/inductor/gru_rnn.py).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._decomp import decompositions as steps
from torch.utils._python_dispatch import _disable_current_modes

from ...._active import outside_capture
from ...errors import user_location
from ...program.recurrent_layer import CUDNN_MODES, WHOLE_LAYERS, Layer
from ..interfaces import RecordedTensor
from .patching import patched_attributes

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ..interfaces import RecorderInterface


aten = torch.ops.aten
_dropout_states: dict[Any, Any] = {}


@contextlib.contextmanager
def recurrent_layers(active: Callable[..., Any], recorder: RecorderInterface) -> Iterator[None]:
    """Replace what torch.nn's recurrent layers call, for cuDNN's inputs and layers computed step by step."""
    flatten = torch.nn.RNNBase.flatten_parameters
    calls = [(torch._VF, name, _layer_call(recorder, active, name)) for name in CUDNN_MODES]
    skipped = lambda self: None if active() else flatten(self)
    with patched_attributes([*calls, (torch.nn.RNNBase, "flatten_parameters", skipped)]):
        yield


def _layer_call(recorder: RecorderInterface, active: Callable[..., Any], name: str) -> Any:
    original = getattr(torch._VF, name)
    index = 0 if name == "lstm" else 1  # this argument is a tensor if the sequences are packed

    def call(input: Any, *args: Any) -> Any:
        if not active():
            return original(input, *args)
        packed = isinstance(args[index], torch.Tensor)
        if torch.cudnn_is_acceptable(input):
            if not packed:
                return _cudnn_layer(name, input, (), *args)
            sizes, *rest = args
            return _cudnn_layer(name, input, sizes.tolist(), *(*rest, False))
        if name == "lstm" and not packed and input._has_symbolic_sizes_strides:
            return _lstm_of_unknown_batch(recorder, input, *args)
        if name == "lstm" or packed or not _by_steps(input, args[0], args[1]):
            return original(input, *args)
        if _is_call(*args) and not _needs_gradient(input, args[0], *args[1]):
            with _disable_current_modes():
                return recorder.__torch_dispatch__(WHOLE_LAYERS[name], (), (input, *args))
        return _steps(recorder, name, input, *args)

    return call


def _needs_gradient(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _by_steps(input: Any, h: Any, weights: Any) -> Any:
    sequence = input.ndim == 3 and 0 not in input.shape[:2]
    return (
        sequence
        and input.device.type == "cpu"
        and input.is_floating_point()
        and not torch.overrides.has_torch_function((input, h, *weights))
    )


def _is_call(
    h: Any, weights: Any, has_biases: bool, layers: Any, dropout: Any, train: Any, *how: Any
) -> bool:
    """Return True if the single recurrent operator gives the same result when the program runs."""
    return not (
        torch._C._are_functorch_transforms_active() or torch.is_autocast_enabled("cpu") or dropout and train
    )


def _steps(
    recorder: Any,
    name: Any,
    input: Any,
    h: Any,
    weights: Any,
    has_biases: Any,
    layers: Any,
    dropout: Any,
    train: Any,
    bidirectional: Any,
    batch_first: Any,
) -> Any:
    """Record the calls of torch's C++ code operator by operator."""
    args = (input, h, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
    nodes, begin = recorder._convert_all(args)[0], recorder.graph._root._prev
    states, per_layer, recorded_layers = h.unbind(0), 4 if has_biases else 2, []

    def direction(at: Any, x: torch.Tensor, reverse: bool) -> Any:
        recorded_layers.append(Layer(name, reverse, len(x), at))
        return _direction(
            recorder.graph,
            recorded_layers[-1],
            x,
            states[at],
            *weights[at * per_layer : (at + 1) * per_layer],
        )

    out, last = _stacked(direction, input, *args[4:])
    last = torch.stack(last)
    for layer in recorded_layers:
        layer.mark_gradient(last, "dlast")
    if _is_call(*args[1:]) and type(out) is type(last) is RecordedTensor:
        recorder.recurrent.append(
            (
                WHOLE_LAYERS[name],
                nodes,
                recorded_layers,
                list(_between(recorder.graph, begin)),
                (out._of_node, last._of_node),
            )
        )
    return out, last


def _stacked(
    direction: Any, input: Any, layers: Any, dropout: Any, train: Any, bidirectional: bool, batch_first: bool
) -> tuple[Any, ...]:
    """(output, last states): direction(at, x, reverse) of each layer and direction."""
    x = input.transpose(0, 1) if batch_first else input
    last: list[Any] = []
    for i in range(layers):
        out = []
        for reverse in (False, True)[: 2 if bidirectional else 1]:
            y, state = direction(len(last), x, reverse)
            out.append(y)
            last.append(state)
        x = torch.cat(out, -1) if bidirectional else out[0]
        if dropout and train and i < layers - 1:
            x = torch.dropout(x, dropout, True)
    return x.transpose(0, 1) if batch_first else x, last


def _lstm_of_unknown_batch(
    recorder: RecorderInterface, input: Any, hx: Any, weights: Any, has_biases: bool, *how: Any
) -> tuple[Any, ...]:
    """Record the LSTM as torch's C++ code runs it.

    That is oneDNN's layer if it takes the dtype and there are sequences, else step by step.
    """
    projected = hx[0].shape[2] != hx[1].shape[2]
    whole = (
        torch._C._get_mkldnn_enabled()
        and input.is_cpu
        and input.dtype in (torch.float32, torch.bfloat16)
        and not projected
    )
    in_one = whole and not recorder.sizes.branch(input.numel() == 0, False, user_location())
    layer: Callable[..., Any] = steps.mkldnn_one_layer_lstm if in_one else steps.one_layer_lstm
    parameters, states = steps.gather_params(weights, has_biases, projected), list(zip(*hx))
    out, last = _stacked(
        lambda at, x, reverse: layer(x, states[at], parameters[at], has_biases, reverse=reverse), input, *how
    )
    h, c = zip(*last)
    return out, torch.stack(h), torch.stack(c)


def _between(graph: Graph, node: Node) -> Iterator[Any]:
    while (node := node._next) is not graph._root:
        yield node


def whole_layers(recorder: RecorderInterface) -> None:
    """Turn layers that were recorded step by step, and that no gradient reads, into one call each."""
    for op, args, layers, nodes, results in recorder.recurrent:
        within = set(nodes)
        if any(layer.differentiated for layer in layers) or any(
            u not in within for n in nodes if n not in results for u in n.users
        ):
            continue
        with recorder.graph.inserting_before(nodes[0]):
            call = recorder.graph.call_function(op, args)
            parts = [recorder.graph.call_function(operator.getitem, (call, i)) for i in range(2)]
        call.meta.update({**results[0].meta, "tensor": None})
        call.meta.pop("recurrent", None)
        for old, new in zip(results, parts):
            new.meta["tensor"] = old.meta["tensor"]
            old.replace_all_uses_with(new)
        for node in reversed(nodes):
            recorder.graph.erase_node(node)


def _direction(
    graph: Graph,
    layer: Any,
    x: torch.Tensor,
    h: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
) -> tuple[Any, ...]:
    linear = torch.nn.functional.linear
    projected = linear(x, w_ih, b_ih)
    layer.mark(projected, "given")
    layer.mark_gradient(projected, "dgiven")
    begin = graph._root._prev
    states = []
    for step, row in enumerate(reversed(projected.unbind(0)) if layer.reverse else projected.unbind(0)):
        if layer.name == "gru":
            reset, update, new = row.unsafe_chunk(3, 1)
        product = linear(h, w_hh, b_hh)
        layer.mark(product, "product", step)
        layer.mark_gradient(product, "dproduct", step)
        if layer.name == "gru":
            r, z, n = product.unsafe_chunk(3, 1)
            r.add_(reset).sigmoid_()
            z.add_(update).sigmoid_()
            n = new.add(n.mul_(r)).tanh_()
            h = h - n
            if step == 0:
                layer.mark_gradient(h, "dfirst")
            h = h.mul_(z).add_(n)
        else:
            h = product.add_(row)
            h = h.tanh() if layer.name == "rnn_tanh" else h.relu()
        layer.mark(h, "state", step)
        states.append(h)
    for node in _between(graph, begin):
        node.meta["recurrent"] = (*node.meta.get("recurrent", ()), (layer, "inner", 0))
    out = torch.stack(states[::-1] if layer.reverse else states)
    layer.mark(out, "out")
    layer.mark_gradient(out, "dout")
    return out, h


def _cudnn_layer(
    name: str,
    input: Any,
    sizes: Any,
    hx: Any,
    weights: Any,
    has_biases: bool,
    layers: Any,
    dropout: Any,
    train: Any,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    h, c = hx if name == "lstm" else (hx, None)
    hidden, projected = (h.shape[2], 0) if c is None or c.shape[2] == h.shape[2] else (c.shape[2], h.shape[2])
    device, per_layer = input.device, (4 if has_biases else 2) + bool(projected)
    state = _dropout_state(dropout, device) if dropout and train else None
    if torch.is_autocast_enabled("cuda"):  # torch casts to float16, whatever autocast's type is
        input, h, c, *weights = (
            t if t is None or t.dtype is torch.float64 else t.to(torch.float16)
            for t in (input, h, c, *weights)
        )
    with torch.autocast("cuda", enabled=False):
        x = input.transpose(0, 1) if batch_first else input
        out, h, c, *_ = torch._cudnn_rnn(
            x,
            list(weights),
            per_layer,
            None,
            h,
            c,
            CUDNN_MODES[name],
            hidden,
            projected,
            layers,
            False,
            dropout,
            train,
            bidirectional,
            list(sizes),
            state,
        )
    out = out.transpose(0, 1) if batch_first else out
    return (out, h, c) if name == "lstm" else (out, h)


def _dropout_state(dropout: Any, device: torch.device) -> Any:
    """Return the state of cuDNN's own generator, which its kernels write.

    There is one state for each device. It starts from torch's seed.
    """
    if device not in _dropout_states:
        with outside_capture():
            _dropout_states[device] = torch._cudnn_init_dropout_state(
                dropout, True, torch.cuda.initial_seed(), dtype=torch.uint8, device=device
            )
    return _dropout_states[device]
