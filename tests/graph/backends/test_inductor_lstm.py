"""LSTM layers under inductor: a graph runs our recurrence, whose error against float64 is no larger than
oneDNN's.
"""

import copy

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.compile.inductor import lstm
from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"oneflow._ext: {_ext.status()}")
aten = torch.ops.aten
vectors = torch.backends.cpu.get_cpu_capability() != "DEFAULT"


def arguments(steps, batch, width, hidden, biases):
    torch.manual_seed(0)
    weights = [torch.randn(4 * hidden, width) / 4, torch.randn(4 * hidden, hidden) / 4]
    weights += (
        [torch.randn(4 * hidden), torch.randn(4 * hidden)]
        if biases
        else [torch.zeros_like(w) for w in weights]
    )
    return [
        torch.randn(steps, batch, width),
        *weights,
        torch.randn(batch, hidden),
        torch.randn(batch, hidden),
    ]


def through(layer, backward, tensors, grads, hidden, biases, reverse):
    """[hidden states, last one, last cell, gradients...] by an operator and its gradient."""
    out, last, cell, work = layer(*tensors, reverse, [], 2, hidden, 1, biases, False, False, True)
    actual = backward(
        *tensors, out, last, cell, *grads, reverse, 2, hidden, 1, biases, True, False, [], False, work
    )
    return [out, last, cell, *actual[: 4 if biases else 3], *actual[5:]]


def exact(tensors, grads, hidden, biases, reverse):
    """The same in float64, by the formula."""
    x, w_ih, w_hh, b_ih, b_hh, h, c = (t.double().requires_grad_() for t in tensors)
    state, cell, out = h, c, {}
    for t in range(len(x))[:: -1 if reverse else 1]:
        gates = x[t] @ w_ih.t() + state @ w_hh.t() + (b_ih + b_hh if biases else 0)
        i, f, g, o = gates.chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state = out[t] = o.sigmoid() * cell.tanh()
    out = torch.stack([out[t] for t in range(len(x))])
    loss = sum((value * grad).sum() for value, grad in zip((out, state, cell), grads) if grad is not None)
    inputs = (x, w_ih, w_hh, *((b_ih,) if biases else ()), h, c)
    return [v.detach() for v in (out, state, cell, *torch.autograd.grad(loss, inputs))]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(
    "sizes", [(4, 3, 5, 19), (6, 2, 64, 64), (1, 1, 3, 33), (3, 13, 2, 130), (5, 4, 1, 1)], ids=str
)
def test_no_further_from_float64_than_onednn(sizes, biases, reverse):
    steps, batch, width, hidden = sizes
    tensors = arguments(*sizes, biases)
    # if only the sequence is used, the last states have no gradient
    for has_gradients in (
        (True, True, True),
        (True, False, False),
    ):
        shapes = [(steps, batch, hidden), (batch, hidden), (batch, hidden)]
        grads = [torch.randn(s) if g else None for s, g in zip(shapes, has_gradients)]
        grads_of_onednn = [torch.zeros(s) if g is None else g for s, g in zip(shapes, grads)]
        new = through(lstm.layer, lstm.layer_backward, tensors, grads, hidden, biases, reverse)
        with torch.enable_grad():
            old = through(
                aten.mkldnn_rnn_layer,
                aten.mkldnn_rnn_layer_backward,
                tensors,
                grads_of_onednn,
                hidden,
                biases,
                reverse,
            )
        for n, o, e in zip(new, old, exact(tensors, grads, hidden, biases, reverse)):
            assert n.shape == e.shape
            # sums in another order: errors of the same size, seen 0.6 to 1.7 times oneDNN's, more only within
            # the last places (4 without vectors)
            assert (n - e).norm() <= 2 * (o - e).norm() + (1 if vectors else 5) * torch.finfo(
                torch.float32
            ).eps * e.norm()


def test_what_the_kernel_does_not_take():
    tensors = arguments(2, 1, 3, 4, True)

    def is_taken(tensors, mode=2, hidden_size=4):
        reverse, batch_sizes, num_layers, has_biases = False, [], 1, True
        options = reverse, batch_sizes, mode, hidden_size, num_layers, has_biases
        return lstm.layer(*tensors, *options) is not NotImplemented

    assert is_taken(tensors)
    assert not is_taken(tensors, hidden_size=700)
    assert not is_taken(tensors, mode=3)
    assert not is_taken([t.bfloat16() for t in tensors])


class Step(flow.nn.Graph):
    def __init__(self, model, backend, clip=None):
        super().__init__()
        self.model, self.clip = model, clip
        self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1 if clip else 0.01))
        self.config.set_backend(backend)

    def build(self, x):
        loss = self.model(x)[0].square().sum()
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        return loss


@pytest.mark.compiler
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=str)
def test_a_graph_runs_it(options):
    losses, seen = {}, []
    for backend in ("aten", "inductor"):
        torch.manual_seed(0)
        graph = Step(torch.nn.LSTM(4, 6, 2, **options), backend)
        graph(torch.ones(3, 2, 4))
        with torch.profiler.profile() as prof:
            losses[backend] = [graph(torch.ones(3, 2, 4)).item() for _ in range(3)]
        seen.append("oneflow::lstm_backward" in {e.key for e in prof.key_averages()})
    assert seen == [False, True]
    assert losses["inductor"] == pytest.approx(losses["aten"], rel=1e-5)


@pytest.mark.compiler
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTMCell"])
def test_both_biases_are_clipped_once(kind):
    """Their gradients are equal, and scaled in place by the fused update."""
    clipped = []
    for backend in ("aten", "inductor"):
        torch.manual_seed(0)
        model = getattr(torch.nn, kind)(4, 6)
        graph = Step(model, backend, clip=0.1)
        for _ in range(2):
            graph(torch.ones(*((2, 4) if "Cell" in kind else (3, 2, 4))))
        clipped.append(list(model.parameters()))
    for one, other in zip(*clipped, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.compiler
def test_lstm_before_arithmetic_with_the_learning_rate():
    """The layer and its gradient are apart: what computes with the rate between them runs as captured."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4))
    eager = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, eager)]

    def loss_of(m, optimizer, x):
        y = torch.tanh(torch.relu(m(x)[0]) * 2).sigmoid() * optimizer.param_groups[0]["lr"]
        loss = y.square().mean()
        loss.backward()
        return loss

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizers[0])
            self.config.set_backend("inductor")

        def build(self, x):
            return loss_of(self.model, optimizers[0], x)

    step, x = Training(), torch.randn(4, 3, 4)
    for _ in range(3):
        optimizers[1].zero_grad()
        expected = loss_of(eager, optimizers[1], x)
        optimizers[1].step()
        torch.testing.assert_close(step(x), expected.detach())
    for p, q in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(p, q)


@pytest.mark.compiler
@pytest.mark.slow
def test_an_lstm_of_bfloat16_is_compiled():
    """Its workspace has a size that only the kernel knows."""
    layers = [nn.LSTM(3, 4, batch_first=True).bfloat16() for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(3, 3, 4).movedim(0, -1).bfloat16()

    class G(flow.nn.Graph):
        def __init__(self, backend, layer):
            super().__init__()
            self.layer = layer
            self.config.set_backend(backend)
            self.add_optimizer(torch.optim.SGD(layer.parameters(), lr=0.1))

        def build(self, x):
            loss = self.layer(x)[0].float().square().sum()
            loss.backward()
            return loss

    compiled, captured = (G(b, layer) for b, layer in zip(("inductor", "aten"), layers))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), captured(x), rtol=0.02, atol=0.02)  # bfloat16
