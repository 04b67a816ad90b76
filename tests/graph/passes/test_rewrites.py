"""Rewrites of the forward and backward pass: activations, bias and gelu, masked softmax and dropout become
kernels.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from rewrite_cases import (  # noqa: F401
    FLOATS,
    SCALED,
    any_size,
    assert_rewritten,
    assert_untouched,
    graph_of,
    needs_kernels,
    targets,
    weights,
    with_dropout,
)

import oneflow as flow
from oneflow._graph.program.passes import fuse_activations

aten, ops = torch.ops.aten, torch.ops


# -- activations ---------------------------------------------------------------------------------------------
FORMS = [(sign, kernel, form) for sign, kernel, forms in fuse_activations.COMPOSITIONS for form in forms]
IDS = [
    f"{kernel if isinstance(kernel, str) else kernel[0].__name__}-{i}"
    for i, (_, kernel, _) in enumerate(FORMS)
]


def parts(kernel):
    return [ops.oneflow.pointwise.default] if isinstance(kernel, str) else [kernel[0], kernel[1]]


@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sign, kernel, form", FORMS, ids=IDS)
def test_activation_forward_and_backward(sign, kernel, form, dtype):
    torch.manual_seed(0)
    x = torch.randn(5, 7).mul(3).to(dtype)
    assert_rewritten(
        lambda x: form(x * 1.0),
        [x],
        parts(kernel),
        [sign, aten.tanh_backward.default, aten.sigmoid_backward.default, aten.pow.Tensor_Scalar],
    )


@needs_kernels
@pytest.mark.parametrize("sign, kernel, form", FORMS, ids=IDS)
def test_activation_without_gradient(sign, kernel, form):
    x = torch.linspace(-6, 6, 35).view(5, 7)
    assert_rewritten(form, [x], parts(kernel)[:1], [sign], backward=False)


def test_activation_of_a_transposed_tensor_keeps_its_layout():
    form = fuse_activations.COMPOSITIONS[0][2][0]
    function = lambda x: form(x.t() * 1.0).t().reshape(-1).view(35)
    assert_rewritten(
        function, [torch.randn(5, 7)], [aten.gelu.default, aten.gelu_backward.default], [aten.tanh.default]
    )


@needs_kernels
def test_a_kernel_that_would_change_the_layout_is_not_used():
    quick = next(forms[0] for _, kernel, forms in fuse_activations.COMPOSITIONS if kernel == "quick_gelu")
    _, graph = graph_of(lambda x: quick(x.t() * 1.0), [torch.randn(5, 7)], backward=False)
    assert aten.sigmoid.default in targets(graph) and ops.oneflow.pointwise.default not in targets(graph)


GELU = fuse_activations.COMPOSITIONS[0][2][0]


def gelu_shared_inside(x):
    t = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))
    return 0.5 * x * (1.0 + t) + t


def gelu_other_number(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.0448 * torch.pow(x, 3.0))))


def gelu_of_two(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x.flip(0) + 0.044715 * torch.pow(x, 3.0))))


def gelu_written_between(x):
    y = x * 1.0
    t = torch.tanh(math.sqrt(2 / math.pi) * (y.detach() + 0.044715 * torch.pow(y.detach(), 3.0)))
    y.add_(1.0)
    return 0.5 * y * (1.0 + t)


@pytest.mark.parametrize(
    "function",
    [gelu_shared_inside, gelu_other_number, gelu_of_two, gelu_written_between],
    ids=lambda f: f.__name__,
)
def test_expressions_that_are_not_exactly_gelu_are_kept(function):
    assert_untouched(function, [torch.randn(5, 7)])


def test_only_the_gradient_is_rewritten_where_the_inside_is_returned():
    class G(flow.nn.Graph):
        def build(self, x):
            t = torch.sigmoid(x)
            return x * t, t

    graph = G()
    graph.config.set_backend("aten")
    graph.config.allow_fuse_compositions(True)
    x = torch.randn(4)
    y, t = graph(x)
    assert (
        torch.equal(t, torch.sigmoid(x)) and torch.equal(y, x * t) and aten.silu.default not in targets(graph)
    )


# -- bias and gelu -------------------------------------------------------------------------------------------
@needs_kernels
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("how", ["sum", "sum the other way", "written out"])
def test_bias_and_gelu(how, dtype):
    torch.manual_seed(0)
    function = {
        "sum": lambda x, w, b: F.gelu(torch.matmul(x[0], w.t()) + b),
        "sum the other way": lambda x, w, b: F.gelu(b + torch.matmul(x, w.t())),
        "written out": lambda x, w, b: (lambda y: y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0))))(
            torch.matmul(x, w.t()) + b
        ),
    }[how]
    tensors = [t.to(dtype) for t in (torch.randn(2, 70, 8), torch.randn(6, 8), torch.randn(6))]
    kernels = [ops.oneflow.bias_gelu.default, ops.oneflow.bias_gelu_backward_sums.default]
    assert_rewritten(
        function, tensors, kernels, [aten.gelu.default, aten.gelu_backward.default, aten.erf.default]
    )


@needs_kernels
def test_bias_and_gelu_without_the_biass_gradient():
    bias = torch.randn(6)
    function = lambda x: F.gelu(x * 1.0 + bias)
    assert_rewritten(
        function,
        [torch.randn(5, 6)],
        [ops.oneflow.bias_gelu.default, ops.oneflow.bias_gelu_backward.default],
        [aten.gelu.default],
    )
    assert_rewritten(
        function,
        [torch.randn(5, 6)],
        [ops.oneflow.bias_gelu.default],
        [aten.gelu.default, aten.add.Tensor],
        backward=False,
    )


@pytest.mark.parametrize(
    "name", ["used again", "no bias", "a row of a matrix", "tanh", "a transposed result"]
)
def test_other_gelus_stay(name):
    x, b = torch.randn(6, 6), torch.randn(6)
    function = {
        "used again": lambda x, b: (lambda y: F.gelu(y) * y)(x * 1.0 + b),
        "no bias": lambda x, b: F.gelu(x * b),
        "a row of a matrix": lambda x, b: F.gelu(x * 1.0 + b[None]),
        "tanh": lambda x, b: F.gelu(x * 1.0 + b, approximate="tanh"),
        "a transposed result": lambda x, b: F.gelu(x.t() * 1.0 + b),
    }[name]
    assert_untouched(function, [x, b], backward=False)


# -- softmax -------------------------------------------------------------------------------------------------
def mask_of(kind):
    torch.manual_seed(3)
    full = torch.rand(2, 3, 6, 6) > 0.4
    full[..., 0] = True
    return {
        "full": full,
        "causal": torch.ones(6, 6).tril().bool(),
        "row": full[:1, :1, :1],
        "column": full[..., :1],
        "transposed": full.transpose(-1, -2).contiguous().transpose(-1, -2),
    }[kind]


MASKED = {
    "where": lambda x, m: torch.where(m, x, -1e4),
    "where a tensor": lambda x, m: torch.where(m, x, torch.tensor(-1e4, dtype=x.dtype)),
    "masked_fill": lambda x, m: x.masked_fill(~m, -2.0),
    "masked_fill -inf": lambda x, m: x.masked_fill(~m, float("-inf")),
    "where the other way": lambda x, m: torch.where(~m, -3.0, x),
    "added": lambda x, m: (
        x
        + torch.where(
            m,
            torch.zeros((), dtype=x.dtype),
            torch.full((), torch.finfo(x.dtype).min if x.dtype != torch.float64 else -1e300, dtype=x.dtype),
        )
    ),
    "added -inf": lambda x, m: (
        torch.where(m, 0.0, float("-inf")).to(x.dtype).expand(x.shape) + x
        if x.dtype == torch.float32
        else x.masked_fill(~m, float("-inf"))
    ),
}
_OLD = [aten._softmax.default, aten._softmax_backward_data.default, aten.masked_fill.Scalar]


@needs_kernels
@pytest.mark.parametrize("how", MASKED)
@pytest.mark.parametrize("scale", SCALED)
def test_masked_softmax(how, scale):
    torch.manual_seed(0)
    mask = mask_of("full")
    function = lambda x: torch.softmax(MASKED[how](SCALED[scale](x * 1.0), mask), -1)
    kernels = [ops.oneflow.masked_softmax.default, ops.oneflow.masked_softmax_backward.default]
    for dtype in FLOATS:
        if how.startswith("added -inf") and dtype is not torch.float32:
            continue
        assert_rewritten(function, [torch.randn(2, 3, 6, 6).to(dtype)], kernels, _OLD)


@needs_kernels
@pytest.mark.parametrize("kind", ["causal", "row", "column"])
def test_masks_that_broadcast(kind):
    mask = mask_of(kind)
    for function in (
        lambda x: torch.softmax(torch.where(mask, x * 0.5, -1e4), -1),
        lambda x: torch.softmax((x * 1.0).masked_fill(mask, -1e4) * 0.5, 3),
        lambda x: torch.softmax(x / 2.0 + torch.where(mask, 0.0, -3e38), dim=-1),
    ):
        assert_rewritten(
            function,
            [torch.randn(2, 3, 6, 6)],
            [ops.oneflow.masked_softmax.default, ops.oneflow.masked_softmax_backward.default],
            _OLD,
        )


@needs_kernels
def test_a_transposed_mask():
    """The kernel reads it from a copy. The gradient had the mask's layout, which the kernel would not give,
    and stays as it was.
    """
    mask = mask_of("transposed")
    assert_rewritten(
        lambda x: torch.softmax(torch.where(mask, x * 0.5, -1e4), -1),
        [torch.randn(2, 3, 6, 6)],
        [ops.oneflow.masked_softmax.default, aten._softmax_backward_data.default],
        [aten._softmax.default],
    )


@needs_kernels
def test_rows_without_any_kept_element():
    mask = torch.zeros(2, 3, 6, 6, dtype=torch.bool)
    for function in (
        lambda x: torch.softmax((x * 0.5).masked_fill(~mask, -1e9), -1),
        lambda x: torch.softmax(x * 0.5 + torch.where(mask, 0.0, torch.finfo(torch.float32).min), -1),
    ):
        got, graph = graph_of(function, [torch.randn(2, 3, 6, 6)])
        plain, _ = graph_of(function, [torch.randn(2, 3, 6, 6)], None)
        assert ops.oneflow.masked_softmax.default in targets(graph)
        assert torch.allclose(got[0], torch.full_like(got[0], 1 / 6), rtol=1e-6)
        assert torch.allclose(plain[0], got[0], rtol=1e-6)


@needs_kernels
def test_one_mask_is_turned_once_for_all_layers():
    mask = mask_of("causal")

    def function(x):
        for _ in range(3):
            x = torch.softmax((x * 0.5).masked_fill(~mask, -1e4), -1) * 3.0
        return x

    def shared(x):
        drop = ~mask
        for _ in range(3):
            x = torch.softmax((x * 0.5).masked_fill(drop, -1e4), -1) * 3.0
        return x

    graph = assert_rewritten(shared, [torch.randn(2, 3, 6, 6)], [ops.oneflow.masked_softmax.default], _OLD)
    assert targets(graph).count(aten.logical_not.default) == 1


NOT_SOFTMAX = {
    "a float mask of unknown values": lambda x, m: torch.softmax(x * 0.5 + m.to(x.dtype), -1),
    "an added mask that is not far enough": lambda x, m: torch.softmax(
        x * 0.5 + torch.where(m, 0.0, -1e4), -1
    ),
    "another dimension": lambda x, m: torch.softmax(torch.where(m, x * 0.5, -1e4), 1),
    "a live scale": lambda x, m: torch.softmax(torch.where(m, x * x.sum(), x.mean()), -1),
    "the masked scores are used again": lambda x, m: (lambda s: torch.softmax(s, -1) + s)(
        torch.where(m, x * 1.0, -1e4)
    ),
    "no mask": lambda x, m: torch.softmax(x * 1.0, -1),
    "the mask is written": lambda x, m: written_mask(x, m),
}


def written_mask(x, m):
    m = m.clone()
    s = (x * 1.0).masked_fill(m, -1e4)
    m.logical_not_()
    return torch.softmax(s, -1)


@pytest.mark.parametrize("name", NOT_SOFTMAX)
def test_other_softmaxes_stay(name):
    mask = mask_of("full")
    assert_untouched(
        lambda x: NOT_SOFTMAX[name](x, mask),
        [torch.randn(2, 3, 6, 6)],
        backward=name != "the mask is written",
    )


# -- dropout -------------------------------------------------------------------------------------------------
@needs_kernels
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_distribution_and_its_mask(p):
    x = torch.ones(200, 500)
    torch.manual_seed(1)
    (y, grad), graph = graph_of(lambda x: F.dropout(x * 1.0, p), [x], with_dropout)
    assert targets(graph).count(
        ops.oneflow.bias_dropout_backward.default
    ) == 2 and aten.bernoulli_.float not in targets(graph)
    kept = y != 0
    assert abs(kept.double().mean().item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / x.numel()), (
        "five standard deviations"
    )
    assert torch.allclose(y[kept], torch.full_like(y[kept], 1 / (1 - p)))
    assert torch.allclose(grad, weights(y) * y), "the gradient goes where the result was kept, scaled alike"


@needs_kernels
def test_dropout_samples_new_masks_and_follows_the_seed():
    class G(flow.nn.Graph):
        def build(self, x):
            return F.dropout(x, 0.5), F.dropout(x, 0.5)

    graph = G()
    graph.config.set_backend("aten")
    graph.config.allow_fuse_compositions(True, dropout=True)
    x = torch.ones(64, 64)
    torch.manual_seed(5)
    a, b = graph(x)
    c, _ = graph(x)
    torch.manual_seed(5)
    again, _ = graph(x)
    assert torch.equal(a, again) and not torch.equal(a, b) and not torch.equal(a, c)


@needs_kernels
def test_dropout_with_a_bias_and_of_a_softmax():
    mask = mask_of("causal")

    def function(x, bias):
        y = F.dropout(torch.softmax(torch.where(mask, x * 0.5, -1e4), -1), 0.3)
        return F.dropout(y + bias, 0.2)

    torch.manual_seed(0)
    (y, *grads), graph = graph_of(function, [torch.randn(2, 3, 6, 6), torch.randn(6)], with_dropout)
    operators = targets(graph)
    assert (
        ops.oneflow.bias_dropout.default in operators
        and aten.bernoulli_.float not in operators
        and aten._softmax.default not in operators
    )
    softmaxes = [
        n
        for n in graph.program.graph.nodes
        if n.target in (ops.oneflow.masked_softmax.default, ops.oneflow.masked_softmax_backward.default)
    ]
    assert [n.args[-2] for n in softmaxes] == [pytest.approx(0.3)] * 2 and softmaxes[0].args[-1] is softmaxes[
        1
    ].args[-1]


@needs_kernels
def test_gradient_of_softmax_with_dropout():
    """By the program's own masks: the result tells what was kept."""
    torch.manual_seed(0)
    mask, x = mask_of("causal"), torch.randn(2, 3, 6, 6, dtype=torch.float64)
    function = lambda x: F.dropout(torch.softmax(torch.where(mask, x * 0.5, -1e4), -1), 0.3)
    (y, grad), _ = graph_of(function, [x], with_dropout)
    x.requires_grad_()
    plain = torch.softmax(torch.where(mask, x * 0.5, -1e4), -1)
    dropped = plain * (y != 0) / 0.7
    assert torch.allclose(dropped[mask.expand(y.shape)], y[mask.expand(y.shape)])
    (weights(y) * dropped).sum().backward()
    assert torch.allclose(grad, x.grad)


def noise_returned(x):
    noise = torch.empty_like(x).bernoulli_(0.7).div_(0.7)
    return x * noise + noise


def other_divisor(x):
    return x * torch.empty_like(x).bernoulli_(0.7).div_(0.5)


def noise_broadcast(x):
    return x * torch.empty_like(x[:1]).bernoulli_(0.7).div_(0.7)


@pytest.mark.parametrize(
    "function", [noise_returned, other_divisor, noise_broadcast], ids=lambda f: f.__name__
)
def test_other_noise_stays(function):
    assert_untouched(function, [torch.randn(5, 7)])


def test_dropout_is_eagers_own_without_the_option():
    function = lambda x: F.dropout(GELU(x * 1.0), 0.4)
    x = torch.randn(5, 7)
    torch.manual_seed(2)
    (y, _), graph = graph_of(function, [x])
    torch.manual_seed(2)
    assert aten.bernoulli_.float in targets(graph) and aten.gelu.default in targets(graph)
    assert torch.equal(y == 0, F.dropout(GELU(x), 0.4) == 0)
