"""What AutoTest compares of a call beyond its values, and on which side each method runs."""

import pytest
import torch
from planted import failure, harness, passes

import oneflow
import oneflow_autotest


def relu_of(api):
    return api.torch.relu(api.random_tensor(2))


# ---------------------------------------------------------------------- both sides are what they claim
def test_the_reference_calls_torchs_own_method(monkeypatch):
    """oneflow replaces methods of torch.Tensor, which both libraries share."""
    original = torch.Tensor.cumsum

    def wrong(self, dim):
        return original(self, dim) + 1

    wrong.__oneflow_original__ = original
    monkeypatch.setattr(torch.Tensor, "cumsum", wrong)
    api = oneflow_autotest.bind(torch, oneflow, names=("torch", "oneflow"))
    assert failure(api, lambda api: api.random_tensor(2).cumsum(1)).check == "values"


def test_the_reference_calls_torchs_own_operator(monkeypatch):
    original = torch.Tensor.__add__
    monkeypatch.setattr(torch.Tensor, "__add__", lambda a, b: original(a, b) * 2)
    api = oneflow_autotest.bind(torch, oneflow, names=("torch", "oneflow"))
    assert failure(api, lambda api: api.random_tensor(2, 2, 3) + 1).check in ("values", "gradient")


# ---------------------------------------------------------------------- levels
def test_another_implementation_may_return_other_strides_and_copies():
    library = harness(relu=lambda x: x.relu().contiguous(), t=lambda x: x.t().clone()).pair.candidate
    api = oneflow_autotest.bind(torch, library, names=("pytorch", "buggy"), level="other implementation")
    passes(api, lambda api: (relu_of(api), api.torch.t(api.random_tensor(2))), check_graph=False)
    strict = oneflow_autotest.bind(torch, library, names=("pytorch", "buggy"))
    assert failure(strict, lambda api: api.torch.t(api.random_tensor(2))).check == "aliasing"
    assert failure(strict, relu_of, n=50).check == "strides"


@pytest.mark.parametrize(
    "check, relu",
    [
        ("identity", lambda x: x),
        ("kind of result", lambda x: (x.relu(),)),
        ("random stream", lambda x: x.relu() + 0 * torch.rand(1).to(x.dtype)),
    ],
)
def test_each_check_reports_its_own_name(check, relu):
    api = harness(relu=relu)
    program = (
        relu_of if check != "identity" else lambda api: api.torch.relu(api.random_tensor(2, low=0, high=1))
    )
    assert failure(api, program, check_dtype=False).check == check


def test_a_graph_refused_in_every_case_fails():
    class Graph(oneflow.nn.Graph):
        def __call__(self, *args):
            raise NotImplementedError("no graph of this")

    e = failure(harness(nn__Graph=Graph), relu_of, check_graph=True, n=3)
    assert e.check == "graph refused" and "NotImplementedError: no graph of this" in str(e)


def sine_with_gradient(factor):
    """sin(x), whose gradient is the right one times a factor."""

    class Sin(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos() * factor

    return Sin.apply


def test_a_wrong_gradient_is_reported_before_the_second_derivative():
    e = failure(
        harness(sin=sine_with_gradient(-1)),
        lambda api: api.torch.sin(api.random_tensor(1, 3)),
        gradcheck=True,
    )
    assert e.check == "gradient"


def test_gradcheck_finds_a_gradient_that_both_sides_have_wrong():
    sine = sine_with_gradient(1.01)

    class Reference:
        Tensor, nn, float32, zeros = torch.Tensor, torch.nn, torch.float32, torch.zeros
        autograd, default_generator, equal = torch.autograd, torch.default_generator, torch.equal
        float64, float16, bfloat16 = torch.float64, torch.float16, torch.bfloat16
        sin = staticmethod(sine)

    api = oneflow_autotest.bind(Reference, harness(sin=sine).pair.candidate, names=("wrong", "buggy"))
    program = lambda api: api.torch.sin(api.random_tensor(2, 2, 3))
    passes(api, program, check_graph=False)
    assert failure(api, program, gradcheck=True).check == "numerical gradient"


# ---------------------------------------------------------------------- sampling
def sampled(like, n=60):
    seen, api = [], harness()

    @api.autotest(n=n, check_graph=False, like=like)
    def run(case):
        seen.append(api.random_tensor(2).pytorch.detach().clone())
        return api.random_tensor(1) * 2

    run(None)
    return seen


def test_the_default_samples_what_breaks_kernels():
    seen = sampled("kernels")
    assert {t.dtype for t in seen} == {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    assert any(t.numel() == 0 for t in seen) and any(33 in t.shape for t in seen)
    values = torch.cat([t.flatten().double() for t in seen])
    assert (values < 0).any() and (values == 0).any() and (values == 1).any() and (values.abs() > 10).any()
    assert torch.signbit(values[values == 0]).any()


def test_like_oneflow_samples_by_oneflows_defaults():
    seen = sampled("oneflow")
    assert {t.dtype for t in seen} == {torch.float32} and {t.shape[0] for t in seen} == {1}
    assert all(t.numel() and t.min() >= 0 and t.max() < 1 and t.is_contiguous() for t in seen)


def test_special_values_are_sampled_when_asked():
    seen, api = [], harness()

    @api.autotest(n=20, check_graph=False)
    def run(case):
        seen.append(api.random_tensor(2, special=True).pytorch.detach().double().flatten())
        return api.random_tensor(1) * 2

    run(None)
    values = torch.cat(seen)
    assert values.isnan().any() and values.isinf().any() and (values.abs() > 1e4).any()


def test_an_unknown_word_for_the_sampling_is_refused():
    with pytest.raises(ValueError, match="must be 'kernels' or 'oneflow', found 'paddle'"):
        oneflow_autotest.bind(torch, torch, like="paddle")
