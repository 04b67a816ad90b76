"""Regression tests: calls from torch's operator samples (torch.testing._internal) that a graph once captured
incorrectly.
"""

from types import SimpleNamespace

import pytest
import torch
from graph_cases import graph_of
from torch import Generator
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import oneflow as flow
from oneflow._graph.errors import CaptureError


def reshaped(x, name, *args):
    y = x * 2
    getattr(y, name)(*args)
    return y, y.sum(0)


@pytest.mark.parametrize(
    "name, args",
    [
        ("squeeze_", (0,)),
        ("unsqueeze_", (1,)),
        ("t_", ()),
        ("as_strided_", ((2, 2), (1, 2))),
        ("resize_", (2, 2)),
    ],
)
def test_the_program_knows_shapes_changed_in_place(name, args):
    x = torch.arange(4.0).reshape(1, 4)
    graph = graph_of(lambda x: reshaped(x, name, *args))
    for got, want, output in zip(graph(x), reshaped(x, name, *args), graph.program.outputs):
        assert torch.equal(got, want) and got.stride() == want.stride() and output.shape == tuple(want.shape)


@pytest.mark.parametrize(
    "options", [{"fused": True}, {"fused": True, "nesterov": True, "dampening": 0.0}, {"foreach": True}]
)
def test_sgd_whose_momentum_begins_with_the_gradient(options):
    def train(in_graph):
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(
            module.parameters(), **{"lr": 0.1, "momentum": 0.9, "dampening": 0.5, **options}
        )

        def build(x):
            module(x).square().mean().backward()

        step = (
            graph_of(build, optimizer, module=module)
            if in_graph
            else lambda x: (optimizer.zero_grad(), build(x), optimizer.step())
        )
        for i in range(4):
            step(torch.randn(4, 3, generator=torch.Generator().manual_seed(i)))
        return module.weight

    assert torch.equal(train(False), train(True))


@pytest.mark.parametrize(
    "backend", ["aten", pytest.param("inductor", marks=pytest.mark.filterwarnings("ignore"))]
)
def test_a_generator_created_in_build_restarts_in_every_call(backend):
    outside = torch.Generator().manual_seed(1)

    def build(x):
        generator = torch.Generator().manual_seed(0)
        assert isinstance(generator, torch.Generator) and isinstance(outside, torch.Generator)
        return (
            x + torch.rand(3, generator=generator),
            torch.rand(3, generator=generator),
            torch.rand(2, generator=torch.Generator()),
            torch.rand(2, generator=outside),
        )

    want = [build(torch.zeros(3)) for _ in range(2)]
    outside.manual_seed(1)
    graph = graph_of(build)
    graph.config.set_backend(backend)
    for call in want:
        assert all(torch.equal(a, b) for a, b in zip(graph(torch.zeros(3)), call))


@pytest.mark.parametrize(
    "names",
    [torch, flow, SimpleNamespace(**{n: getattr(torch, n) for n in ("get_rng_state", "set_rng_state")})],
    ids=["torch", "oneflow", "kept"],
)
def test_random_states_are_the_programs_under_any_name(names):
    flow.Generator, flow.get_rng_state, flow.set_rng_state, flow.cond  # oneflow caches looked-up names

    def build(x, most):
        state = names.get_rng_state()
        first = torch.rand(2)
        names.set_rng_state(state)
        return (
            first,
            torch.rand(2),
            torch.rand(2, generator=Generator().manual_seed(3)),
            flow.cond(most.any(), torch.sin, torch.cos, (x,)),
        )

    args = torch.zeros(2), torch.tensor([True])
    graph = graph_of(build)
    for seed in range(3):
        torch.manual_seed(seed)
        want = *build(*args), torch.get_rng_state()
        torch.manual_seed(seed)
        assert all(torch.equal(a, b) for a, b in zip((*graph(*args), torch.get_rng_state()), want))


def test_a_capture_leaves_the_tensor_class_as_it_was():
    """Once a class with __getitem__ is a sequence for C, Python never reverts this: torch.tensor() then reads
    the length of a tensor.
    """
    before = dict(vars(torch.Tensor))
    graph_of(lambda x, i: x[i] + 1)(torch.ones(2, 2), torch.tensor(1))
    assert dict(vars(torch.Tensor)) == before
    assert torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]


def test_torchs_python_functions_branch_as_in_eager_mode():
    layer, x = (
        torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval(),
        torch.rand(2, 3, 4),
    )

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    own = torch.ones(2).as_subclass(Own)
    with torch.no_grad():
        graph = graph_of(lambda x: (layer(x), torch.functional.norm(own)))
        out, name = graph(x)
        assert name == torch.functional.norm(own) == "norm" and torch.equal(out, layer(x))
        assert any("_transformer_encoder_layer_fwd" in str(n.target) for n in graph.program.graph.nodes)


@pytest.mark.parametrize("bias", [causal_lower_right, causal_upper_left])
@pytest.mark.parametrize("rows", [4, 3])
def test_attention_with_a_bias_that_is_a_class_of_tensors(bias, rows):
    def build(q, k):
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, bias(rows, 4))

    q, k = torch.rand(1, 2, rows, 8), torch.rand(1, 2, 4, 8)
    assert torch.equal(graph_of(build)(q, k), build(q, k))


def test_names_looked_up_during_a_capture_stay_the_same_objects():
    looked_up = "Generator", "any", "cond", "ctc_loss", "get_rng_state"
    before = {n: getattr(flow, n) for n in looked_up}
    for n in looked_up:
        vars(flow).pop(n)
    graph_of(lambda x: [getattr(flow, n) for n in looked_up] and x + 1)(torch.ones(1))
    assert all(getattr(flow, n) is before[n] for n in looked_up)


def test_an_alias_keeps_its_shape_when_the_other_is_squeezed():
    def build(x):
        y = x.detach()
        y.squeeze_((0, 1))
        return x * 2, y

    assert [t.shape for t in graph_of(build)(torch.ones(1, 1, 3))] == [(1, 1, 3), (3,)]


@pytest.mark.parametrize(
    "driver, shape, backend",
    [
        (None, (5, 3), "aten"),
        ("gels", (5, 3), "aten"),
        ("gelsd", (2, 5, 3), "aten"),
        (None, (3, 5), "aten"),
        pytest.param("gels", (5, 3), "inductor", marks=pytest.mark.slow),
    ],
)
def test_least_squares_give_eager_results_and_gradients(driver, shape, backend):
    def build(a, b):
        actual = torch.linalg.lstsq(a, b, driver=driver)
        actual.solution.square().sum().backward()
        return actual.solution, actual.residuals, a.grad, b.grad

    def given():
        generator = torch.Generator().manual_seed(4)
        return [
            torch.randn(*size, generator=generator, requires_grad=True) for size in (shape, (*shape[:-1], 2))
        ]

    graph = graph_of(build)
    graph.config.set_backend(backend)
    for got, want, output in zip(graph(*given()), build(*given()), graph.program.outputs):
        # the LAPACK routine's last digit depends on the memory address
        assert got.shape == want.shape == output.shape and torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def test_linearize_and_cond_are_recorded():
    def build(x):
        value, push = torch.func.linearize(lambda t: (t * t).sin(), x)
        return (
            value,
            push(torch.ones(3)),
            torch.cond(torch.tensor(True), lambda t: t + 1, lambda t: t - 1, (x,)),
        )

    graph = graph_of(build)
    for x in (torch.randn(3), torch.randn(3)):
        value, tangent, branch = graph(x)
        assert (
            torch.equal(value, (x * x).sin())
            and torch.allclose(tangent, 2 * x * (x * x).cos())
            and torch.equal(branch, x + 1)
        )
    with pytest.raises(CaptureError, match="needs the value of a tensor"):
        graph_of(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))(torch.ones(3))


@pytest.mark.filterwarnings(
    "ignore:flex_attention called without", "ignore:return_lse is deprecated:FutureWarning"
)
def test_flex_attention_is_recorded_as_plain_operators():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    bias, mask = torch.rand(2), create_block_mask(lambda b, h, q, k: q >= k, None, None, 20, 20, device="cpu")

    def build(q, k):
        plain, lse = flex_attention(q, k, k, return_lse=True)
        return (
            plain,
            lse,
            flex_attention(q, k, k, score_mod=lambda s, b, h, i, j: s + (i - j) * bias[h], block_mask=mask),
        )

    q, k = torch.rand(1, 2, 20, 8).transpose(0, 1).contiguous().transpose(0, 1), torch.rand(1, 2, 20, 8)
    graph = graph_of(build)
    for _ in range(2):  # the second time with another bias
        for got, want in zip(graph(q, k), build(q, k), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()
        bias.mul_(2)


def test_operators_that_take_functions_are_refused():
    from torch._higher_order_ops.while_loop import while_loop

    with pytest.raises(CaptureError, match="takes functions"):
        graph_of(lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)))(
            torch.ones(3)
        )


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_as_strided_of_a_part_counts_from_the_beginning_of_the_memory(backend):
    graph = graph_of(lambda x: torch.as_strided(x, (2, 2), (1, 2), storage_offset=1) * 2)
    graph.config.set_backend(backend)
    assert graph(torch.arange(20.0)[10:]).tolist() == [[2.0, 6.0], [4.0, 8.0]]


@pytest.mark.parametrize(
    "fill", [torch.masked_fill, lambda x, mask, value: (x * 2).masked_fill_(mask, value)]
)
def test_the_gradient_of_a_filled_in_number_is_summed_as_in_eager(fill):
    torch.manual_seed(0)
    x, mask, value = (
        torch.randn(67, 31, requires_grad=True),
        torch.rand(67, 31) > 0.5,
        torch.tensor(0.3, requires_grad=True),
    )

    def gradients(x, mask, value):
        filled = fill(x, mask, value)
        return torch.autograd.grad((filled * filled.sin() * torch.arange(31.0)).sum(), [x, value])

    graph = graph_of(gradients)
    for got, want in zip(graph(x, mask, value), gradients(x, mask, value)):
        assert torch.equal(got, want)
    assert "masked_select" in str(graph.program)


@pytest.mark.skipif(torch.cuda.is_available(), reason="seeds of a machine without CUDA")
def test_seeds_of_cuda_without_cuda_are_left_for_later_as_in_eager():
    def build(x):
        torch.cuda.manual_seed(3), torch.cuda.random.manual_seed(3), torch.cuda.manual_seed_all(3)
        return x + torch.rand(3)

    graph = graph_of(build)
    for seed in range(2):
        torch.manual_seed(seed)
        want = build(torch.zeros(3))
        torch.manual_seed(seed)
        assert torch.equal(graph(torch.zeros(3)), want)


def test_where_with_a_mask_of_bytes():
    mask = torch.tensor([0, 1, 255], dtype=torch.uint8)

    def build(x):
        return torch.where(mask, x, x * 2), torch.where((x > 2).byte(), x, 0.0)

    x = torch.arange(1.0, 4.0)
    for expected, actual in zip(build(x), graph_of(build)(x), strict=True):
        assert torch.equal(expected, actual)
