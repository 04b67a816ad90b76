"""Results of kernels in a compiled region whose fake kernels give another layout."""

import pytest
import torch
import torch.nn.functional as F
from inductor_cases import results_of_backend

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def operators():
    """Operators that return 2 * x.t() without a copy, as tensors that they describe as contiguous."""
    with torch.library._scoped_library("kernel_results_test", "DEF") as library:
        library.define("transposed(Tensor x) -> Tensor")
        library.define("both(Tensor x) -> (Tensor, Tensor)")
        library.define("doubles(Tensor x) -> Tensor")
        library.define("rows(Tensor x) -> Tensor")
        transposed = lambda x: (2 * x).t()
        contiguous = lambda x: x.new_empty(x.shape[::-1])
        for name, kernel, fake in (
            ("transposed", transposed, contiguous),
            ("both", lambda x: (transposed(x), 3 * x), lambda x: (contiguous(x), torch.empty_like(x))),
            ("doubles", lambda x: x.double(), torch.empty_like),
            ("rows", lambda x: x[:2].clone(), torch.empty_like),
        ):
            library.impl(name, kernel, "CPU")
            torch.library.register_fake(f"kernel_results_test::{name}", fake, lib=library)
        yield torch.ops.kernel_results_test


def compiled_results(build, *arguments, **options):
    return results_of_backend("inductor", build, {}, None, [arguments], {"backend_options": options})


@pytest.mark.parametrize("cpp_wrapper", [True, False])
def test_kernel_with_other_strides_than_its_fake_kernel(operators, cpp_wrapper):
    x = torch.arange(15.0).view(3, 5)

    def build(self, x):
        alone, (one_of_two, other) = operators.transposed(x + 1), operators.both(x - 1)
        return alone, alone.sin(), one_of_two.cos(), other.exp()

    alone, sine, cosine, exponential = compiled_results(build, x, cpp_wrapper=cpp_wrapper)[:4]
    assert torch.equal(alone, 2 * (x + 1).t())
    for result, expected in (
        (sine, (2 * (x + 1).t()).sin()),
        (cosine, (2 * (x - 1).t()).cos()),
        (exponential, (3 * (x - 1)).exp()),
    ):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("cpp_wrapper", [True, False])
@pytest.mark.parametrize("name", ["doubles", "rows"])
def test_kernel_with_another_shape_or_dtype_than_its_fake_kernel(operators, name, cpp_wrapper):
    operator = getattr(operators, name)
    x = torch.ones(3, 5)
    with pytest.warns(UserWarning, match=f"a result of kernel_results_test.{name}.default has another"):
        result = compiled_results(lambda self, x: operator(x + 1).sin(), x, cpp_wrapper=cpp_wrapper)[0]
    assert torch.equal(result, operator(x + 1).sin()), "the captured operators run instead"


@pytest.mark.filterwarnings("error:.*the compiled program is wrong")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weight_norm(dtype):
    def build(self, x, v, g):
        loss = F.linear(x, torch._weight_norm(v, g, 0)).sum()
        return loss, *torch.autograd.grad(loss, (v, g))

    x, v, g = (torch.randn(shape).to(dtype) for shape in ((3, 4), (6, 4), (6, 1)))
    v.requires_grad_(), g.requires_grad_()
    loss, *gradients = compiled_results(build, x, v, g)[:3]
    expected = F.linear(x, torch._weight_norm(v, g, 0)).sum()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients, [*torch.autograd.grad(expected, (v, g))])


def test_gradient_of_padding_a_channels_last_image():
    image = torch.randn(2, 4, 7, 9).contiguous(memory_format=torch.channels_last)

    def build(self, image, weights):
        leaf = image.detach().requires_grad_()
        padded = F.pad(leaf * 1.5, (1, 2, 0, 3), mode="replicate")
        return torch.autograd.grad((padded * weights).sum(), leaf)

    weights = torch.randn(2, 4, 10, 12)
    compiled = results_of_backend("inductor", build, {}, None, [(image, weights)], {})[0]
    torch.testing.assert_close(compiled, build(None, image, weights)[0])
