"""Tolerances of half types, and the verdict by the distance from the float64 value."""

from types import SimpleNamespace

import pytest
import torch
from planted import failure, graph_class, harness, passes

import oneflow_autotest
from oneflow_autotest.rounded_sums import RoundedSums
from oneflow_autotest.verdict import OTHER_IMPLEMENTATION, SAME_KERNELS, Standard, judge, ulp_of


def other(**replaced):
    """The harness, bound to a library with kernels of its own."""
    library = harness(**replaced).pair.candidate
    return oneflow_autotest.bind(torch, library, names=("pytorch", "buggy"), level=OTHER_IMPLEMENTATION)


def in_float32(function):
    return lambda x, *args: function(x.float(), *args).to(x.dtype)


def sampled(api, dtype=None):
    x = api.random_tensor(ndim=2, dim0=3, dim1=4, low=-2, high=2)
    return x if dtype is None else x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_kernel_that_rounds_once_passes_with_its_float32_leaf(dtype):
    """The leaf is float32, but its gradient went through the half type."""
    api = other(tanh=in_float32(torch.tanh), softmax=in_float32(torch.softmax))
    passes(api, lambda api: api.torch.tanh(sampled(api, dtype)), check_graph=False, n=20)
    passes(api, lambda api: api.torch.softmax(sampled(api, dtype), 1), check_graph=False, n=20)


def test_a_graph_in_bfloat16_may_round_elsewhere(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_GRAPH_BACKEND", "inductor")
    api = harness(nn__Graph=graph_class(gradients=lambda g: g * (1 + 2**-8)))
    passes(api, lambda api: sampled(api, torch.bfloat16) * 2, check_graph=True, n=3)


def test_an_error_of_8_ulp_fails_although_it_is_inside_the_tolerance():
    api = harness(exp=lambda x: x.exp() * (1 + 1e-6))
    e = failure(api, lambda api: api.torch.exp(sampled(api)))
    assert e.check == "values" and "inside rtol=0.0001" in str(e)
    assert "ULP of float32 from the float64 value, pytorch 0" in str(e)


def test_an_error_of_3_ulp_in_bfloat16_fails():
    api = harness(tanh=lambda x: x.tanh() * (1 + 2**-6 + 2**-7))
    assert failure(api, lambda api: api.torch.tanh(sampled(api, torch.bfloat16))).check == "values"


def test_float64_computed_in_float32_fails():
    api = harness(exp=lambda x: x.float().exp().double())
    e = failure(api, lambda api: api.torch.exp(sampled(api, torch.float64)))
    assert e.check == "values" and "ULP of float64" in str(e)


def test_a_gradient_inside_the_tolerance_but_far_from_float64_fails():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.exp())
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0] * (1 + 1e-5)

    assert failure(harness(exp=Exp.apply), lambda api: api.torch.exp(sampled(api))).check == "gradient"


def test_a_result_that_cancels_may_be_as_wrong_as_the_reference():
    """x - mean(x) of equal features is rounding noise on both sides."""

    def layer_norm(x, shape):
        centered = x - x.sum(-1, keepdim=True) / x.shape[-1]
        return centered / ((centered**2).mean(-1, keepdim=True) + 1e-5).sqrt()

    api = other(nn__functional__layer_norm=layer_norm)
    program = lambda api: api.torch.nn.functional.layer_norm(
        api.random_tensor(2, 3, 4, low=1000, high=1000.001), (4,)
    )
    passes(api, program, check_graph=False, n=20)


def test_a_module_with_random_weights_is_judged_by_its_float64_value():
    class Linear(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * (1 + 1e-5)

    e = failure(harness(nn__Linear=Linear), lambda api: api.torch.nn.Linear(4, 3)(sampled(api)))
    assert e.check == "values" and "inside rtol=0.0001" in str(e)


def test_a_gradient_of_a_half_module_is_judged_by_its_float64_value():
    """Torch rounds the gates of the cell to the half type, so its gradients are off by many units."""

    class LSTMCell(torch.nn.LSTMCell):
        def forward(self, x):
            gates = x.float() @ self.weight_ih.float().t() + self.bias_ih.float() + self.bias_hh.float()
            i, f, g, o = gates.chunk(4, 1)
            cell = i.sigmoid() * g.tanh()
            return (o.sigmoid() * cell.tanh()).to(x.dtype), cell.to(x.dtype)

    def program(api):
        x = api.random_tensor(2, dim1=4, dtype=torch.bfloat16)
        return api.torch.nn.LSTMCell(4, 3).to(torch.bfloat16)(x)[0]

    passes(other(nn__LSTMCell=LSTMCell), program, check_graph=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_second_derivative_of_a_half_type_is_judged_by_its_float64_value(dtype):
    """Torch rounds each step of the second derivative, and its terms cancel."""
    api = other(rsqrt=in_float32(torch.rsqrt))

    def program(api):
        return api.torch.rsqrt(api.random_tensor(2, 90, 90, low=0.1, high=3, dtype=dtype))

    passes(api, program, check_graph=False, gradcheck=True, n=6)


def test_another_level_passes_what_is_inside_the_tolerance():
    naive = lambda x: x.exp() - 1
    program = lambda api: api.torch.expm1(api.random_tensor(2, low=-0.01, high=0.01))
    passes(other(expm1=naive), program, check_graph=False)
    assert failure(harness(expm1=naive), program).check == "values"


def test_a_tolerance_of_the_test_is_the_only_standard():
    api = harness(exp=lambda x: x.exp() * (1 + 1e-6))
    passes(api, lambda api: api.torch.exp(sampled(api)), check_graph=False, rtol=1e-5, atol=0)


def test_elements_that_cancel_may_all_be_as_wrong_as_the_worst_of_them():
    """Each has rounding noise of one size, which a single value of the reference does not show."""
    random, options = torch.Generator().manual_seed(0), SimpleNamespace(rtol=None, atol=None)

    def with_noise(ulps):
        return 1 + torch.randn(20_000, generator=random, dtype=torch.float64) * ulps * 2**-23

    moved = 1 + 30 * 2**-23
    truth = tuple(torch.full((20_000,), x, dtype=torch.float64) for x in (1, moved, moved, moved, moved))
    standard = Standard(SAME_KERNELS, lambda: truth)
    reference = with_noise(100).float()
    assert not judge(reference, with_noise(100).float(), options, standard).differs.any()
    assert judge(reference, with_noise(5000).float(), options, standard).differs.any()


def test_elements_below_the_noise_of_the_reference_are_noise():
    """A gradient of zero is noise on both sides, whose size only the other zeros show."""
    options, exact = (
        SimpleNamespace(rtol=None, atol=None),
        torch.tensor([0.0, 1e-30, 1.0], dtype=torch.float64),
    )
    standard = Standard(SAME_KERNELS, lambda: (exact,) * 5)
    reference = torch.tensor([1e-8, 1e-11, 1.0])
    assert not judge(reference, torch.tensor([-1e-8, 2e-8, 1.0]), options, standard).differs.any()
    assert judge(reference, torch.tensor([1e-6, 1e-6, 1.0]), options, standard).differs.tolist() == [
        True,
        True,
        False,
    ]


def test_a_kernel_of_a_half_type_may_round_an_intermediate_result():
    """Outside of its vectorized loop, torch's rsqrt rounds the square root to bfloat16 before it divides."""
    options, x = SimpleNamespace(rtol=None, atol=None), torch.linspace(0.1, 3, 4096).to(torch.bfloat16)
    standard = Standard(SAME_KERNELS, lambda: (x.double().rsqrt(),) * 5)
    twice_rounded = 1 / x.sqrt()
    assert not judge(x.rsqrt(), twice_rounded, options, standard).differs.any()
    assert judge(x.rsqrt(), x.rsqrt() * (1 + 2**-6), options, standard).differs.all()


def test_a_denormal_number_may_be_flushed_to_zero_in_float64():
    options, exact = SimpleNamespace(rtol=None, atol=None), torch.tensor([0.0, 0.0], dtype=torch.float64)
    standard = Standard(SAME_KERNELS, lambda: (exact,) * 5)
    candidate = torch.tensor([1e-320, 1e-300], dtype=torch.float64)
    assert judge(exact, candidate, options, standard).differs.tolist() == [False, True]


def test_a_zero_of_float64_may_be_as_far_away_as_its_terms_carry():
    options, exact = SimpleNamespace(rtol=None, atol=None), torch.zeros(1, dtype=torch.float64)
    standard = Standard(SAME_KERNELS, lambda: (exact, *(exact + 1e-15,) * 4))
    assert not judge(exact, exact + 9e-16, options, standard).differs.any()
    assert judge(exact, exact + 1e-12, options, standard).differs.all()


def test_an_intermediate_result_in_float64_may_be_as_far_away_as_a_result():
    """The reference is the float64 value, so it shows no error of its own."""
    options, exact = SimpleNamespace(rtol=None, atol=None), torch.ones(1, dtype=torch.float64)
    moved = exact + 3 * 2**-52
    standard = Standard(SAME_KERNELS, lambda: (exact, moved, moved, moved, moved))
    assert not judge(exact, exact + 40 * 2**-52, options, standard).differs.any()
    assert judge(exact, exact + 41 * 2**-52, options, standard).differs.all()


@pytest.mark.parametrize("module", ["LayerNorm", "BatchNorm1d"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_in_another_order_pass_although_their_terms_cancel(module, dtype):
    """A gradient is a small difference of sums, and the sums of two kernels differ by their rounding."""
    norm = getattr(torch.nn, module)
    api = harness(**{f"nn__{module}": type(module, (norm,), {"forward": with_rows_reversed(norm)})})

    def program(api):
        x = api.random_tensor(2, dim0=266, dim1=6, low=-2, high=2, dtype=dtype)
        return getattr(api.torch.nn, module)(6).to(dtype)(x)

    passes(api, program, check_graph=False, n=20)


def with_rows_reversed(norm):
    """Return a forward that runs the kernels on the rows in reverse order."""
    return lambda self, x: norm.forward(self, x.flip(0)).flip(0)


def test_a_perturbed_sum_moves_by_half_a_unit_of_its_terms():
    x = torch.tensor([1000.0, -1000.0, 1.0], dtype=torch.float64)
    moves = set()
    for run in range(4):
        with RoundedSums(2**-23, run):
            moves.add(x.sum().item() - 1)
    assert moves == {2001 * 2**-24, -2001 * 2**-24}


def test_a_sum_whose_terms_do_not_cancel_moves_with_their_number():
    x = torch.ones(400, dtype=torch.float64)
    with RoundedSums(2**-23, 0):
        assert abs(x.sum().item() - 400) == pytest.approx(400 * (20 / 4) * 2**-24)


def test_the_moves_of_two_sums_do_not_cancel_in_every_run():
    x = torch.ones(100, dtype=torch.float64)
    differences = []
    for run in range(4):
        with RoundedSums(2**-23, run):
            differences.append((x.sum() - x.sum()).abs().item())
    assert max(differences) == pytest.approx(250 * 2**-23) and min(differences) == 0


def test_the_sums_inside_a_kernel_move():
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gradient_of_weight():
        norm = torch.nn.LayerNorm(4).double()
        norm(x).sum().backward()
        return norm.weight.grad

    exact = gradient_of_weight()
    with RoundedSums(2**-23, 0):
        assert (gradient_of_weight() - exact).abs().min() > 10 * 2**-24


def test_another_implementation_may_overflow_where_the_float64_value_does():
    options, exact = SimpleNamespace(rtol=None, atol=None), torch.tensor([1e6, 1.0], dtype=torch.float64)
    standard = Standard(OTHER_IMPLEMENTATION, lambda: (exact,) * 5)
    reference = torch.tensor([float("nan"), 1.0], dtype=torch.float16)
    for value, differs in ((float("inf"), False), (-float("inf"), True), (1e3, True)):
        candidate = torch.tensor([value, 1.0], dtype=torch.float16)
        assert judge(reference, candidate, options, standard).differs.tolist() == [differs, False]


def test_infinity_and_nan_are_reported_as_differences():
    for wrong, distance in ((float("inf"), "inf"), (float("nan"), "nan")):
        e = failure(harness(exp=lambda x: x.exp() * wrong), lambda api: api.torch.exp(sampled(api)))
        assert e.check == "values" and f"largest distance {distance}," in str(e)


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(
        ValueError, match="must be one of 'same kernels', 'other implementation', found 'lax'"
    ):
        oneflow_autotest.bind(torch, torch, level="lax")


def test_a_unit_in_the_last_place():
    x = torch.tensor([1.0, 1.5, 2.0, -3.0, 0.0])
    assert ulp_of(x, torch.float32)[:4].tolist() == [2**-23, 2**-23, 2**-22, 2**-22]
    assert ulp_of(x, torch.float32)[4] == torch.finfo(torch.float32).smallest_normal * 2**-23


def test_shrinking_keeps_the_difference_and_does_not_end_in_rounding_noise():
    """running_var takes the biased variance: 0.03 off, but for equal features only rounding differs."""

    class BatchNorm1d(torch.nn.BatchNorm1d):
        def forward(self, x):
            before, out = self.running_var.clone(), super().forward(x)
            self.running_var.data.copy_(0.9 * before + 0.1 * x.detach().var(0, unbiased=False))
            return out

    e = failure(
        harness(nn__BatchNorm1d=BatchNorm1d),
        lambda api: api.torch.nn.BatchNorm1d(3)(api.random_tensor(2, dim0=4, dim1=3)),
    )
    assert e.check == "buffers" and e.distance > 1000, str(e)[:600]


def test_shrinking_stays_with_the_check_that_failed_first():
    """At zero the values agree and only the gradient is wrong."""
    e = failure(harness(tanh=lambda x: x.tanh() * 1.5), lambda api: api.torch.tanh(sampled(api)))
    assert e.check == "values"


def overflows(x):
    """x * x / x, whose intermediate result overflows in float32 where the last one does not."""
    return x * x / x


@pytest.mark.parametrize("level", ["same kernels", OTHER_IMPLEMENTATION])
def test_a_candidate_that_does_not_overflow_passes_as_another_implementation(level, monkeypatch):
    monkeypatch.setattr(torch, "careful", overflows, raising=False)

    def program(api):
        return api.torch.careful(api.random_tensor(1, 3, low=1e25, high=2e25, dtype=torch.float32))

    library = harness(careful=lambda x: x * 1.0).pair.candidate
    api = oneflow_autotest.bind(torch, library, names=("pytorch", "buggy"), level=level)
    if level == OTHER_IMPLEMENTATION:
        passes(api, program, check_graph=False, auto_backward=False)
        library = harness(careful=lambda x: x * 1.001).pair.candidate
        api = oneflow_autotest.bind(torch, library, names=("pytorch", "buggy"), level=level)
    assert failure(api, program, auto_backward=False).check == "values"
