"""Pointwise operators of aten programs in groups (_graph/compile/pointwise_groups.py) give eager's bits."""

import math

import pytest
import torch
from graph_cases import assert_same_training, graph_of
from torch import nn

from oneflow._graph.compile import pointwise_groups, update_steps
from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason="needs the kernel library (csrc/build.py)")
aten = torch.ops.aten


def group_calls(graph):
    """The number of results of each call of oneflow::blocks in the program of a graph."""
    nodes = pointwise_groups.in_groups(graph.program).graph.nodes
    return [node.args[1] for node in nodes if node.target is torch.ops.oneflow.blocks.default]


def have_equal_bits(a, b):
    bits = torch.int32 if a.dtype == torch.float32 else torch.int64
    return bool(((a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())).all())


class Activation(nn.Module):
    """The activation of GPT-2, written out, between two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(61, 301), nn.Linear(301, 61)

    def forward(self, x):
        h = self.up(x)
        t = torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0)))
        return self.down(0.5 * h * (1.0 + t))


def loss_of(model, x):
    return model(x).pow(2).mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_training_bit_for_bit(dtype):
    torch.manual_seed(0)
    batches = [(torch.randn(37, 61, dtype=dtype),) for _ in range(10)]
    graph = assert_same_training(
        Activation().to(dtype), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), loss_of, batches
    )
    forward, backward = group_calls(graph)[:2]
    assert forward == 4 and backward == 1


FORMS = {  # of two tensors and a number
    "arithmetic": lambda x, y: (x * y + x * 0.3 - y / 3) / (y + 2) - 1,
    "scaled sums": lambda x, y: torch.sub(torch.add(x, y, alpha=0.3), x * y, alpha=1.7),
    "differences": lambda x, y: (x - 0) * (y - 0.0) - torch.sub(y - x, x, alpha=0) - (x - 1),
    "powers": lambda x, y: x.pow(2) + y.pow(3) * x.pow(3.0),
    "exponentials": lambda x, y: (x.exp() + y.tanh()).log().erf(),
    "trigonometry": lambda x, y: x.sin() * y.cos() + x.abs().sqrt(),
    "piecewise": lambda x, y: torch.maximum(x.relu(), y) - torch.minimum(x, -y),
    "fused": lambda x, y: torch.addcdiv(torch.addcmul(x, y, y, value=0.7), x, y, value=-0.3).lerp(y, 0.2),
    "gradients": lambda x, y: (
        aten.tanh_backward(aten.threshold_backward(x, y, 0.1), y) + aten.sigmoid_backward(y, x)
    ),
    "reciprocals": lambda x, y: x.reciprocal() * y.neg().mul(2).reciprocal() + y,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_special_values_bit_for_bit(form, dtype):
    graph = graph_of(FORMS[form])
    x, y, _ = (operand.repeat(9) for operand in update_steps._test_values(dtype))
    assert have_equal_bits(graph(x, y), FORMS[form](x, y))
    assert len(group_calls(graph)) == 1


@pytest.mark.parametrize("is_flushed", [False, True])
def test_denormal_values_as_the_user_set_them(is_flushed):
    form = FORMS["arithmetic"]
    graph = graph_of(form)
    x, y, _ = (operand.repeat(9) for operand in update_steps._test_values(torch.float32))
    torch.set_flush_denormal(is_flushed)
    try:
        assert have_equal_bits(graph(x, y), form(x, y))
    finally:
        torch.set_flush_denormal(False)


def test_two_threads():
    form, threads = FORMS["exponentials"], torch.get_num_threads()
    x, y = torch.randn(2, 300, 401).unbind()
    graph = graph_of(form)
    torch.set_num_threads(2)
    try:
        assert have_equal_bits(graph(x, y), form(x, y))
    finally:
        torch.set_num_threads(threads)


def test_wrong_step_stays_with_aten(monkeypatch):
    monkeypatch.setattr(update_steps, "_run_step", lambda name, operands, number: operands[0] + 1)
    update_steps.is_exact.cache_clear()
    try:
        graph = graph_of(FORMS["arithmetic"])
        x, y = torch.randn(2, 100, 200).unbind()
        assert torch.equal(graph(x, y), FORMS["arithmetic"](x, y))
        assert group_calls(graph) == []
    finally:
        update_steps.is_exact.cache_clear()


def write_between(x, y):
    z = x * 2
    w = z + y
    y.add_(1)
    return (w * y + x).tanh() * z


def write_into_a_member(x, y):
    z = x * 2 + y
    z.mul_(3)
    return z.tanh() + x * y - 1


def view_of_a_member(x, y):
    z = x * y + 1
    return z.t().tanh() + (z * 2 - y).t()


@pytest.mark.parametrize("function", [write_between, write_into_a_member, view_of_a_member])
def test_writes_and_views_between_members(function):
    x, y = torch.randn(2, 100, 200).unbind()
    graph = graph_of(function)
    assert torch.equal(graph(x, y), function(x, y.clone()))


LEFT_TO_ATEN = {
    "other layouts": (lambda x: x.t() * 2 + x.t() * 3 - x.t(), torch.randn(100, 200)),
    "integers": (lambda x: x * 2 + x * 3 - x, torch.arange(20000)),
    "bfloat16": (lambda x: x * 2 + x * 3 - x, torch.randn(20000).bfloat16()),
    "few small": (lambda x: x * 2 + x, torch.randn(30)),
    "broadcast": (lambda x: (x + x[:1]) * (x - x[:1]) / x[:1], torch.randn(100, 200)),
}


@pytest.mark.parametrize("name", LEFT_TO_ATEN)
def test_left_to_aten(name):
    function, x = LEFT_TO_ATEN[name]
    graph = graph_of(function)
    result, expected = graph(x), function(x)
    assert torch.equal(result, expected) and result.stride() == expected.stride()
    assert group_calls(graph) == []


def test_group_that_would_hold_more_memory_stays_with_aten():
    """One by one, each operator frees its operand. A group would hold all operands and all results."""

    def function(x):
        a, b, c, d = (x[i : i + 20000].clone() for i in range(4))
        a, b, c, d = a.tanh(), b.tanh(), c.tanh(), d.tanh()
        return a.sum() + b.sum() + c.sum() + d.sum()

    x = torch.randn(20003)
    graph = graph_of(function)
    assert torch.equal(graph(x), function(x))
    assert group_calls(graph) == []


def test_groups_are_a_pass_that_can_be_skipped():
    x, y = torch.randn(2, 100, 200).unbind()
    keys = []
    for skip in ([], ["in_groups"]):
        graph = graph_of(FORMS["arithmetic"])
        graph.config.passes(skip=skip)
        graph(x, y)
        with torch.profiler.profile() as profile:
            result = graph(x, y)
        assert torch.equal(result, FORMS["arithmetic"](x, y))
        keys.append("oneflow::blocks" in {event.key for event in profile.key_averages()})
    assert keys == [True, False]
