"""The inductor backend against eager: 8-bit integers, NaN and infinite values."""

import math

import pytest
import torch

import oneflow as flow

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]


def on_inductor(function, *arguments):
    """Return the results of one call of a graph on inductor."""

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

        def build(self, *arguments):
            return function(*arguments)

    return G()(*arguments)


def assert_equal(actual, expected):
    assert len(actual) == len(expected)
    for index, (a, b) in enumerate(zip(actual, expected)):
        assert a.dtype is b.dtype and a.shape == b.shape, index
        assert torch.allclose(a.double(), b.double(), rtol=0, atol=0, equal_nan=True), (index, a, b)


def extremes(x):
    """Return each kind of minimum and maximum, over all elements and along each dimension."""
    results = [x.min(), x.max(), x.argmin(), x.argmax(), *torch.aminmax(x)]
    for dim in range(x.ndim):
        results += [x.amin(dim), x.amax(dim), x.argmin(dim), x.argmax(dim), *x.min(dim), *x.max(dim)]
        results += torch.aminmax(x, dim=dim, keepdim=True)
    return results


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_smallest_and_largest_integers(dtype):
    """Zeros that fill the last vector of a loop do not take part."""
    lowest = 130 if dtype is torch.uint8 else 3
    rows = [(torch.arange(n).view(shape) % 101 + lowest).to(dtype) for n, shape in (
        (37, (37,)), (64, (64,)), (111, (3, 37)), (111, (37, 3)), (102, (2, 3, 17)),
    )]  # fmt: skip
    if dtype.is_signed:
        rows += [-x for x in rows]

    def build(*rows):
        return [result for x in rows for result in extremes(x)]

    assert_equal(on_inductor(build, *rows), build(*rows))


def test_any_of_uint8_is_uint8():
    def build(x):
        return x.any(), x.any(0), x.any(1, keepdim=True), x.all(), x.all(0)

    x = torch.tensor([[0, 3, 0], [0, 255, 7]], dtype=torch.uint8)
    assert_equal(on_inductor(build, x), build(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32])
def test_products_with_zero_keep_nan(dtype):
    def build(x):
        y = x.clone()
        products = (y * 0, 0 * y, y * 0.0, y * False, y.mul_(0), y * torch.zeros_like(y), y * torch.tensor(0))
        return *products, products[0].sum()

    if dtype.is_floating_point:
        x = torch.tensor([math.nan, math.inf, -math.inf, 2.0] * 5, dtype=dtype)
    else:
        x = torch.arange(20, dtype=dtype)
    assert_equal(on_inductor(build, x), build(x))


def test_gradients_of_products_with_zero_keep_nan():
    def build(x):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((x.log() * 0).sum(), x)
        return (gradient,)

    x = torch.tensor([0.0, 1.0, -1.0, math.inf] * 5)
    assert_equal(on_inductor(build, x), build(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("rows, columns", [(16, 8), (1, 1)])
def test_gradients_of_scattered_extremes_find_the_elements(dtype, reduce, positions, rows, columns):
    """Fused loops leave half types as wide as they were, and then no element equals the extreme."""

    def build(x):
        x = x.clone().requires_grad_()
        source = (
            torch.arange(rows * columns, dtype=dtype).view(rows, columns) * 1.12 if positions else x * 1.3
        )
        y = (x * 0.93 + x * 0.31).scatter_reduce(0, x.detach().argsort(0) // 2, source, reduce)
        return torch.autograd.grad((y.float() * weights).sum(), x)

    weights = torch.arange(float(rows * columns)).view(rows, columns).cos()
    x = torch.randn(rows, columns).to(dtype)
    (actual,), (expected,) = on_inductor(build, x), build(x)
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)  # sums of half types


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_of_half_type_is_stored_twice(dtype):
    """The gradients of two biases that are added are one sum."""

    def build(x):
        a, b = (torch.zeros(17, dtype=dtype, requires_grad=True) for _ in range(2))
        return torch.autograd.grad((x.exp() + a + b).square().sum(), (a, b))

    x = torch.linspace(-1, 1, 17 * 17).view(17, 17).to(dtype)
    for actual, expected in zip(on_inductor(build, x), build(x), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)  # sums of half types


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fractional_pooling_has_eagers_windows(dtype):
    samples = torch.rand(2, 4, 3).to(dtype)

    def build(x):
        return torch.nn.functional.fractional_max_pool3d(
            x, (2, 2, 2), output_ratio=0.6, return_indices=True, _random_samples=samples
        )

    x = torch.randn(2, 4, 9, 9, 9).to(dtype)
    assert_equal(on_inductor(build, x), build(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_casts_to_half_types_round(dtype):
    """A position above 256 is no number of bfloat16, so its cosine is that of another one."""

    def build(positions, x):
        low = x.to(dtype)
        return [
            positions.to(dtype).cos(),
            low.float() * 2,
            low.cos(),
            positions + low,
            positions.to(dtype) == positions,
            (low * 0.3 + low).sin(),
        ]

    positions = torch.arange(600) * 7
    x = torch.linspace(-300, 300, 600)
    assert_equal(on_inductor(build, positions, x), build(positions, x))
