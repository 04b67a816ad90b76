"""oneflow::convolution and its gradients. Under inductor, nn.Graph uses them if they are faster than oneDNN's
convolutions.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_matmul import pytestmark  # noqa: F401  the same kernels
from torch import nn

import oneflow as flow
from oneflow._graph.compile.inductor import matmul
from oneflow._graph.compile.inductor import settings as backend_settings

ops = torch.ops.oneflow


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def compare(images, channels, filters, size, kernel, stride, padding, dilation):
    """Each result beside float64's: off by no more than the additions' rounding, in any order."""
    torch.manual_seed(0)
    x = torch.randn(images, channels, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(filters, channels, *kernel, dtype=torch.float64, requires_grad=True)
    y = torch.conv2d(x, weight, None, stride, padding, dilation)
    dy = torch.randn_like(y)
    exact = (y, *torch.autograd.grad(y, [x, weight], dy))
    x32, weight32, dy32 = (t.detach().float() for t in (x, weight, dy))
    actual = [
        ops.convolution(x32, weight32, *stride, *padding, *dilation),
        None,
        ops.convolution_backward_weight(dy32, x32, *kernel, *stride, *padding, *dilation),
    ]
    if stride == [1, 1]:
        actual[1] = ops.convolution_backward_input(dy32, weight32, *size, *padding, *dilation)
    terms = (
        channels * kernel[0] * kernel[1],
        filters * kernel[0] * kernel[1],
        images * y.shape[2] * y.shape[3],
    )
    for mine, expected, count in zip(actual, exact, terms, strict=True):
        if mine is not None:
            assert mine.shape == expected.shape and mine.is_contiguous() and mine.dtype is torch.float32
            # of `count` additions of products of numbers up to 4
            bound = 2.0**-24 * (count + 2) * 16 * max(count, 1) ** 0.5
            assert (mine - expected).abs().max() <= bound


pairs = st.lists(st.integers(1, 3), min_size=2, max_size=2)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 70),
    st.lists(st.integers(1, 33), min_size=2, max_size=2),
    st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=2, max_size=2),
    pairs,
    st.lists(st.integers(0, 4), min_size=2, max_size=2),
    st.lists(st.integers(1, 2), min_size=2, max_size=2),
)
def test_a_convolution_equals_torchs(images, channels, filters, size, kernel, stride, padding, dilation):
    if all(n + 2 * p > d * (k - 1) for n, p, d, k in zip(size, padding, dilation, kernel, strict=True)):
        compare(images, channels, filters, size, kernel, stride, padding, dilation)


@pytest.mark.parametrize(
    "case",
    [
        (2, 300, 130, (8, 8), (1, 1), [1, 1], [0, 0], [1, 1]),
        (1, 16, 70, (20, 30), (1, 1), [1, 1], [0, 0], [1, 1]),
        (5, 20, 300, (4, 4), (3, 3), [1, 1], [1, 1], [1, 1]),
        (3, 3, 40, (32, 32), (8, 8), [8, 8], [0, 0], [1, 1]),
        (2, 64, 64, (16, 16), (1, 1), [2, 2], [0, 0], [1, 1]),
        (1, 3, 200, (6, 5), (2, 3), [2, 1], [1, 2], [1, 2]),
    ],
)
def test_equals_torch_with_several_threads(three_threads, case):
    compare(*case[:5], *map(list, case[5:]))


def test_any_layout_and_no_elements():
    x, weight = torch.randn(2, 6, 5, 4), torch.randn(7, 6, 3, 3)
    expected = ops.convolution(x, weight, 1, 1, 1, 1, 1, 1)
    last = torch.channels_last
    assert torch.equal(
        ops.convolution(
            x.contiguous(memory_format=last), weight.contiguous(memory_format=last), 1, 1, 1, 1, 1, 1
        ),
        expected,
    )
    assert ops.convolution(x[:0], weight, 1, 1, 1, 1, 1, 1).shape == (0, 7, 5, 4)
    assert torch.equal(ops.convolution(x[:, :0], weight[:, :0], 1, 1, 1, 1, 1, 1), torch.zeros(2, 7, 5, 4))
    assert torch.equal(
        ops.convolution_backward_weight(expected[:0], x[:0], 3, 3, 1, 1, 1, 1, 1, 1), torch.zeros(7, 6, 3, 3)
    )
    assert torch.equal(
        ops.convolution_backward_input(expected[:, :0], weight[:0], 5, 4, 1, 1, 1, 1), torch.zeros(2, 6, 5, 4)
    )


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda x, w: ops.convolution(x, w[:, :2], 1, 1, 0, 0, 1, 1),
            r"weight must have shape \(any, 3, any, any\), found \(4, 2, 3, 3\)",
        ),
        (
            lambda x, w: ops.convolution(x, w, 1, 1, 0, 0, 3, 1),
            "weight must fit 5 pixels with a padding of 0 and a dilation of 3, found a kernel of 3",
        ),
        (lambda x, w: ops.convolution(x, w, 0, 1, 0, 0, 1, 1), "stride_h must be 1 to 2147483647, found 0"),
        (
            lambda x, w: ops.convolution(x[0], w, 1, 1, 0, 0, 1, 1),
            r"x must have 4 dimensions, found 3: shape \(3, 5, 5\)",
        ),
        (
            lambda x, w: ops.convolution(x.double(), w, 1, 1, 0, 0, 1, 1),
            "x must have dtype float32, found float64",
        ),
        (
            lambda x, w: ops.convolution_backward_input(x, w, 5, 5, 0, 0, 1, 1),
            r"dy must have shape \(any, 4, 3, 3\), found \(2, 3, 5, 5\)",
        ),
        (
            lambda x, w: ops.convolution_backward_weight(x, x, 3, 3, 1, 1, 0, 0, 1, 1),
            r"dy must have shape \(2, any, 3, 3\), found \(2, 3, 5, 5\)",
        ),
    ],
)
def test_wrong_operands_are_named(call, said):
    with pytest.raises(RuntimeError, match=said):
        call(torch.ones(2, 3, 5, 5), torch.ones(4, 3, 3, 3))


class Network(nn.Module):
    """Supported layers: a patch, one pixel, one pixel with a stride, few pixels; and an unsupported one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 40, 4, 4),
            nn.Conv2d(40, 60, 1),
            nn.Tanh(),
            nn.Conv2d(60, 50, 1, 2, bias=False),
            nn.Conv2d(50, 64, 3, 2, 1),
            nn.Tanh(),
        )
        self.whole = nn.Conv2d(3, 10, 3)

    def forward(self, x):
        return self.layers(x).square().mean() + self.whole(x).square().mean()


class Depthwise(nn.Module):
    """Of the kind that inductor computes channels last: there layers of one pixel are products."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2),
            nn.ReLU6(),
            nn.Conv2d(16, 60, 1),
            nn.ReLU6(),
            nn.Conv2d(60, 60, 3, 1, 1, groups=60),
            nn.ReLU6(),
            nn.Conv2d(60, 24, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, x):
        return self.layers(x).square().mean()


class Signals(nn.Module):
    """The same in one dimension: steps of ten, one element, one of two elements, few elements; and an
    unsupported one.
    """

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, 40, 10, 10),
            nn.Tanh(),
            nn.Conv1d(40, 60, 1),
            nn.Conv1d(60, 50, 1, 2, bias=False),
            nn.Tanh(),
            nn.Conv1d(50, 64, 3, 4, 1),
        )
        self.whole = nn.Conv1d(3, 10, 3)

    def forward(self, x):
        x = x.flatten(1, 2).reshape(2, 3, -1)
        return self.layers(x).square().mean() + self.whole(x).square().mean()


class OneNumber(nn.Module):
    """Strides and paddings of which one number stands for both dimensions."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 40, 4, 4, padding="valid"), nn.Conv2d(40, 60, 1, padding="same"), nn.Tanh()
        )
        self.weight = nn.Parameter(torch.randn(50, 60, 1, 1) / 8)

    def forward(self, x):
        return (
            torch.convolution(self.layers(x), self.weight, None, [2], [1], [1], False, [0], 1).square().mean()
        )


@pytest.mark.parametrize(
    "network, counts",
    [
        (
            Network,
            {
                "oneflow.convolution.": 4,
                "oneflow.convolution_backward_input": 1,
                "oneflow.convolution_backward_weight": 4,
                "aten.convolution.": 1,
                "aten.convolution_backward": 4,
            },
        ),  # images of patches and strides: oneDNN
        (
            Signals,
            {
                "oneflow.convolution.": 4,
                "oneflow.convolution_backward_input": 1,
                "oneflow.convolution_backward_weight": 4,
                "aten.convolution.": 1,
                "aten.convolution_backward": 4,
            },
        ),
        (
            OneNumber,
            {
                "oneflow.convolution.": 3,
                "oneflow.convolution_backward_input": 1,
                "oneflow.convolution_backward_weight": 3,
                "aten.convolution.": 0,
                "aten.convolution_backward": 2,
            },
        ),
        (Depthwise, {"oneflow.mm": 6, "aten.convolution.": 2, "aten.convolution_backward": 2}),
    ],
)
@pytest.mark.parametrize("faster", [False, True])
def test_a_program_of_inductor_takes_them_where_they_are_faster(monkeypatch, network, counts, faster):
    from torch._inductor import config as inductor_config

    monkeypatch.setattr(backend_settings, "blocks_are_faster", lambda: faster)
    taken = []
    original = matmul.multiply_in_blocks
    monkeypatch.setattr(
        matmul,
        "multiply_in_blocks",
        lambda graph: (
            original(graph),
            taken.extend(str(n.target) for n in graph.nodes if n.op == "call_function"),
        ),
    )
    torch.manual_seed(faster)
    model, x = network(), torch.randn(2, 3, 48, 48, requires_grad=True)

    @flow.nn.Graph.trace
    def graph(x):
        loss = model(x)
        return loss, *torch.autograd.grad(loss, [x, *model.parameters()])

    graph.config.set_backend("inductor")
    with inductor_config.patch(fx_graph_cache=False):  # cached graphs are not rewritten again
        results = graph(x)
    exact, x64 = network().double(), x.detach().double().requires_grad_()
    exact.load_state_dict(model.state_dict())
    loss = exact(x64)
    for actual, expected in zip(
        results, [loss, *torch.autograd.grad(loss, [x64, *exact.parameters()])], strict=True
    ):
        # sums of up to 4000 numbers in float32
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
    assert {name: sum(name in t for t in taken) for name in counts} == (
        counts if faster else dict.fromkeys(counts, 0)
    )
