"""The kernels of LSTM, GRU and RNN against float64 references."""

import pytest
import torch

from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_in_float64(reverse):
    torch.manual_seed(0)
    layer = torch.nn.LSTM(5, 9, dtype=torch.float64)
    x, h, c = (
        torch.randn(4, 3, 5, dtype=torch.float64),
        torch.randn(3, 9, dtype=torch.float64, requires_grad=True),
        torch.randn(3, 9, dtype=torch.float64, requires_grad=True),
    )
    turn = (lambda t: t.flip(0)) if reverse else (lambda t: t)
    gate_inputs = (x @ layer.weight_ih_l0.t() + layer.bias_ih_l0 + layer.bias_hh_l0).detach()
    hidden, last, cell, work = torch.ops.oneflow.lstm(
        gate_inputs, layer.weight_hh_l0.detach(), h.detach(), c.detach(), reverse
    )
    y, (last_y, cell_y) = layer(turn(x), (h[None], c[None]))
    for got, expected in ((hidden, turn(y)), (last, last_y[0]), (cell, cell_y[0])):
        torch.testing.assert_close(got, expected.detach(), rtol=1e-12, atol=1e-12)
    dy, dlast, dcell = torch.randn_like(hidden), torch.randn_like(last), torch.randn_like(cell)
    dgates, dh, dc = torch.ops.oneflow.lstm_backward(
        dy, dlast, dcell, work, c.detach(), layer.weight_hh_l0.detach(), reverse
    )
    (turn(y) * dy).sum().add((last_y[0] * dlast).sum()).add((cell_y[0] * dcell).sum()).backward()
    for got, expected in (
        (dgates.sum((0, 1)), layer.bias_ih_l0.grad),
        (dgates.flatten(0, 1).t() @ x.flatten(0, 1), layer.weight_ih_l0.grad),
        (dh, h.grad),
        (dc, c.grad),
    ):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(4, 3, 9), (1, 1, 1), (5, 7, 70)], ids=str)
@pytest.mark.parametrize("kind", ["gru", "tanh", "relu"])
@pytest.mark.parametrize("biased", [True, False])
def test_gru_and_rnn_in_float64(kind, biased, sizes, reverse):
    torch.manual_seed(0)
    steps, batch, hidden = sizes
    options = {} if kind == "gru" else {"nonlinearity": kind}
    layer = (torch.nn.GRU if kind == "gru" else torch.nn.RNN)(
        5, hidden, bias=biased, dtype=torch.float64, **options
    )
    x, h = (
        torch.randn(steps, batch, 5, dtype=torch.float64),
        torch.randn(batch, hidden, dtype=torch.float64, requires_grad=True),
    )
    turn = (lambda t: t.flip(0)) if reverse else (lambda t: t)
    w_ih, w_hh, *biases = (p.detach() for p in layer.parameters())
    b_ih, b_hh = biases or (0, None)
    gate_inputs = x @ w_ih.t() + b_ih
    y, last = layer(turn(x), h[None])
    dy, dlast = torch.randn_like(y), torch.randn_like(last[0])
    (turn(y) * dy).sum().add((last[0] * dlast).sum()).backward()
    ops = torch.ops.oneflow
    if kind == "gru":
        out, work = ops.gru(gate_inputs, w_hh, b_hh, h.detach(), reverse)
        dgiven, dturned, dh = ops.gru_backward(dy, dlast, out, work, h.detach(), w_hh, reverse)
    else:
        out, dh = ops.rnn(gate_inputs, w_hh, b_hh, h.detach(), kind == "relu", reverse), 0
        dgiven = dturned = ops.rnn_backward(dy, dlast, out, w_hh, kind == "relu", reverse)
    before = torch.cat([out[1:], h.detach()[None]] if reverse else [h.detach()[None], out[:-1]]).flatten(0, 1)
    actual = [
        out,
        dgiven.flatten(0, 1).t() @ x.flatten(0, 1),
        dturned.flatten(0, 1).t() @ before,
        dh + dturned[-1 if reverse else 0] @ w_hh,
    ]
    expected = [turn(y), layer.weight_ih_l0.grad, layer.weight_hh_l0.grad, h.grad]
    if biased:
        actual, expected = (
            actual + [dgiven.sum((0, 1)), dturned.sum((0, 1))],
            expected + [layer.bias_ih_l0.grad, layer.bias_hh_l0.grad],
        )
    for got, reference in zip(actual, expected):
        torch.testing.assert_close(got, reference.detach(), rtol=1e-11, atol=1e-11)


def test_lstm_refuses_invalid_arguments():
    with pytest.raises(RuntimeError, match="given must have dtype float32, float64, found bfloat16"):
        torch.ops.oneflow.lstm(
            torch.ones(1, 1, 4).bfloat16(),
            torch.ones(4, 1).bfloat16(),
            torch.ones(1, 1).bfloat16(),
            torch.ones(1, 1).bfloat16(),
            False,
        )
    with pytest.raises(RuntimeError, match=r"weight must have shape \(4, 1\), found \(3, 1\)"):
        torch.ops.oneflow.lstm(
            torch.ones(1, 1, 4), torch.ones(3, 1), torch.ones(1, 1), torch.ones(1, 1), False
        )


def test_gru_and_rnn_refuse_invalid_arguments():
    one, three = torch.ones(1, 1, 1), torch.ones(1, 1, 3)
    with pytest.raises(RuntimeError, match=r"bias must have shape \(3\), found \(1\)"):
        torch.ops.oneflow.gru(three, torch.ones(3, 1), torch.ones(1), torch.ones(1, 1), False)
    with pytest.raises(RuntimeError, match=r"h0 must have shape \(1, 1\), found \(2, 1\)"):
        torch.ops.oneflow.rnn(one, torch.ones(1, 1), None, torch.ones(2, 1), False, False)
    with pytest.raises(RuntimeError, match=r"work must have shape \(1, 1, 4\), found \(1, 1, 3\)"):
        torch.ops.oneflow.gru_backward(
            None, None, one, torch.ones(1, 1, 3), torch.ones(1, 1), torch.ones(3, 1), False
        )
    with pytest.raises(
        RuntimeError, match=r"dhidden must have the shape of hidden, \(1, 1, 1\), found \(1, 1, 3\)"
    ):
        torch.ops.oneflow.rnn_backward(three, None, one, torch.ones(1, 1), False, False)


def test_lstm_of_no_steps_and_no_rows():
    h = torch.randn(2, 3)
    hidden, last, cell, _ = torch.ops.oneflow.lstm(torch.ones(0, 2, 12), torch.ones(12, 3), h, 2 * h, False)
    assert hidden.shape == (0, 2, 3) and torch.equal(last, h) and torch.equal(cell, 2 * h)
    assert torch.ops.oneflow.lstm(torch.ones(4, 0, 12), torch.ones(12, 3), h[:0], h[:0], True)[0].shape == (
        4,
        0,
        3,
    )
