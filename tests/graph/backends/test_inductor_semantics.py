"""The inductor backend against the aten backend: writes, views, constants, numbers, layouts."""

import pytest
import torch
from inductor_cases import assert_backends_agree, rows, sgd
from torch import nn

import oneflow as flow

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]


@pytest.mark.parametrize("dialect", ["oneflow", "torch"])
def test_inputs_closures_and_views_are_written_and_returned(dialect, request):
    flow.set_dialect(dialect)
    request.addfinalizer(lambda: flow.set_dialect("oneflow"))
    free = torch.zeros(6)

    def build(self, x):
        free.add_(x.sum(0))
        x.mul_(2)
        return x, x[1:], free, self.m.weight, x + free

    def modules():
        free.zero_()
        return {"m": nn.Linear(6, 6)}

    assert_backends_agree(build, modules, rows(4, 6))


def test_results_computed_from_constants_are_written():
    def build(self, x):
        order = torch.empty_like(torch.tensor([2, 0, 1])).scatter_(
            0, torch.tensor([2, 0, 1]), torch.arange(3)
        )
        total = torch.tensor([1.0, 2.0, 3.0]) * 2
        total.add_(self.m(x).sum(0)[order])
        loss = total.pow(2).mean()
        loss.backward()
        return loss, total

    assert_backends_agree(build, lambda: {"m": nn.Linear(4, 3)}, rows(5, 4), sgd)


def test_gradient_that_equals_another_parameter_is_read_before_the_update():
    """The gradients of a.dot(b) are b and a, times a constant 1. Results times 1 are no aliases either."""

    def build(self, x):
        first, second = self.pair
        loss = torch.dot(first, second)
        loss.backward()
        one = torch.full((), 1.0)
        return loss, x * one, x * one, first.detach() * one

    def modules():
        return {"pair": nn.ParameterList([torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0])])}

    assert_backends_agree(build, modules, rows(4, 6), sgd)


def test_numbers_made_in_build_are_raised_to_powers():
    def build(self, x):
        scale = torch.distributions.Normal(torch.zeros(4), 1.0).scale
        loss = (self.m(x).pow(2) / (2 * scale**2)).mean()
        loss.backward()
        return loss, scale, torch.tensor(3) * x.sum().long()

    assert_backends_agree(build, lambda: {"m": nn.Linear(4, 4)}, rows(5, 4), sgd)


@pytest.mark.parametrize("to", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_products_with_sparse_matrices_run(to):
    matrix = to(torch.eye(5) * 2)

    def build(self, x):
        loss = (matrix @ self.m(x)).pow(2).mean()
        loss.backward()
        return loss

    assert_backends_agree(build, lambda: {"m": nn.Linear(4, 4)}, rows(5, 4), sgd)


def test_second_derivatives_by_forward_mode():
    def build(self, x):
        loss = torch.func.hessian(lambda v: torch.tanh(self.m(v)).sum())(x[0]).pow(2).mean()
        loss.backward()
        return loss

    assert_backends_agree(build, lambda: {"m": nn.Linear(4, 6)}, rows(5, 4), sgd)


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.view(10, 3, 2),
        lambda c: c.as_strided((10, 3, 2), (6, 2, 1)),
        lambda c: c.view(10, 3, 2).mul_(2) + c.view(10, 3, 2),
        lambda c: c,
    ],
    ids=["view", "as_strided", "written", "returned"],
)
def test_results_are_laid_out_as_captured(
    use,
):  # inductor's form of cat copies the layout of a lone tensor, torch's kernel does not
    def build(self, x):
        used = use(torch.cat([torch.tensor([]), self.m(x).view(2, 3, 5, 2).transpose(1, 2)], -2))
        loss = (used * torch.arange(60.0).view(used.shape)).pow(2).mean()
        loss.backward()
        return loss, used

    assert_backends_agree(build, lambda: {"m": nn.Linear(10, 10)}, rows(2, 3, 10), sgd)


def test_powers_of_numbers_to_integers():
    def build(self, i, j, k):
        return 2**i, 3**j, (2**k) * j, 2.5**i, 1**j

    assert_backends_agree(
        build,
        lambda: {},
        [
            (
                torch.tensor([0, 3, 10], dtype=torch.int32),
                torch.tensor([5, 0, 2]),
                torch.tensor([True, False, True]),
            )
        ],
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_floor_division_rounds_the_exact_quotient_down(dtype):
    """Not the rounded one, which is a whole number too large where the quotient is just below one
    (torch.compile 2.13).
    """
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([11, -11, 5, 1, 0, -3, inf, 7, -0.0, 6.0], dtype=torch.float64)
    y = torch.tensor([0.44, 0.44, 0, 0.1, -1, inf, 2, nan, 3, 2], dtype=torch.float64)
    if not dtype.is_floating_point:
        x, y = torch.tensor([11, -11, 5, -1]), torch.tensor([3, 3, -5, 2])
    x, y = x.to(dtype), y.to(dtype)

    def build(x, y):
        by = 0.44 if dtype.is_floating_point else 3
        return (
            x // y,
            x.floor_divide(by),
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, by, rounding_mode="floor"),
            x % y,
            x % by,
            by % x,
            x.clone().remainder_(y),
            x // by,
        )

    graph = flow.nn.Graph.trace(lambda *args: build(*args))
    graph.config.set_backend("inductor")
    x = x if dtype.is_floating_point else x.abs()
    for actual, expected in zip(graph(x, y), build(x, y), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        if dtype.is_floating_point:
            assert torch.equal(actual.signbit()[~actual.isnan()], expected.signbit()[~expected.isnan()])


def test_as_strided_of_views():
    memory = torch.arange(20.0)

    def build(self, x):
        square = (x * 1).view(2, 5)
        square.fill_diagonal_(0)
        return (
            x[1:].as_strided((3,), (1,), 7) * 2,
            x.view(2, 5).t().as_strided((2, 2), (1, 3), 6) + 1,
            x[2:].as_strided((2,), (1,)) + 0,
            square,
        )

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

    G.build = build
    for actual, expected in zip(G()(memory[5:15]), build(None, memory[5:15])):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    "largest",
    [
        lambda x: x.amax(1, keepdim=True),
        pytest.param(
            lambda x: torch.aminmax(x, dim=1)[1],
            marks=pytest.mark.skipif(
                torch.__version__ < (2, 13), reason="torch < 2.13 has no gradient of aminmax"
            ),
        ),
        lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    ],
    ids=["amax", "aminmax", "norm"],
)
def test_indices_of_the_largest_element_are_recomputed(largest):
    """Gradients compare the elements with the largest; computed anew in another loop, erf may be off by a
    rounding.
    """

    def gradient(p):
        return torch.autograd.grad(largest(torch.erf(p[..., 0] + p[..., 1])).sum(), p)[0]

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

        def build(self, p):
            return gradient(p)

    torch.manual_seed(0)
    p = torch.randn(64, 8, 2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(G()(p), gradient(p))


@pytest.mark.parametrize(
    "windows", [lambda x: x.unfold(1, 1, 2), lambda x: x.unfold(0, 2, 3)[:, 1]], ids=["columns", "part"]
)
def test_windows_written_in_place(windows):
    """What lies between them stays (torch.compile 2.13 loses it)."""

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

        def build(self, x):
            return windows(x).clamp_(-1, 1).sum(), x * 2, x

    x = torch.randn(5, 7) * 3
    before, expected = x.clone(), x.clone()
    total, doubled, written = G()(x)
    torch.testing.assert_close(total, windows(expected).clamp_(-1, 1).sum())
    assert torch.equal(written, expected) and torch.equal(doubled, expected * 2)
    assert torch.equal(x, before), "a write to an argument stays inside the call"


def test_multiples_of_products_are_added():
    def build(self, x, y):
        self.m.weight.data.mul_(0.5).add_(x.t() @ y, alpha=0.01)  # an average, as of a codebook
        return (
            torch.add(x.t() @ y, self.m.weight, alpha=-2),
            torch.add(x @ x.t(), y @ y.t(), alpha=0.5),
            torch.add(x.double(), y[:, :3], alpha=0.1),
            torch.add(x @ x.t(), 1, alpha=0.5),
        )

    assert_backends_agree(
        build,
        lambda: {"m": nn.Linear(4, 3)},
        [(torch.arange(15.0).view(5, 3).sin(), torch.arange(20.0).view(5, 4).cos())],
    )


def test_sums_along_constants_have_their_dtype_and_memory():
    def build(self, x):
        ones = torch.ones(3, 4, dtype=torch.bool, device=x.device)
        return (
            ones.cumsum(1, dtype=torch.float32),
            torch.full((3, 4), 2.5).cumsum(0, dtype=torch.int64),
            torch.full((3, 4), 0.1).cumsum(0, dtype=torch.float64),
            ones.cumsum(0),
            x * 2,
        )

    assert_backends_agree(build, dict, [(torch.ones(2),)])


@pytest.mark.parametrize(
    "write",
    [
        lambda i, v: torch.zeros(100).scatter_add(0, i, v),
        lambda i, v: torch.ones(100).scatter_reduce(0, i, v, "prod"),
        lambda i, v: torch.zeros(100).index_add(0, i, v),
    ],
    ids=["scatter_add", "scatter_reduce", "index_add"],
)
def test_tensors_written_in_place_are_read_after_the_write(write):
    def build(self, x, mask, i, v):
        # a loop of other lengths, to which the product's loop is adapted
        weights = torch.softmax(x + mask[:, None, None, :], -1)
        return weights, weights * write(i, v).view(2, 2, 5, 5)

    assert_backends_agree(
        build,
        dict,
        [
            (
                torch.arange(100.0).view(2, 2, 5, 5).sin(),
                torch.arange(10.0).view(2, 5).cos(),
                torch.arange(60) * 7 % 90,
                torch.arange(60.0).cos(),
            )
        ],
    )


def test_gradients_of_inverse_transforms():
    """irfft() doubles a part of its gradient in place: the products that read it ran before that, in
    torch.compile too.
    """

    class Filtered(nn.Linear):
        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) @ torch.view_as_complex(self.weight.view(4, 4, 2)), n=6)

    def build(self, x):
        loss = self.m(x).square().mean()
        loss.backward()
        return loss, loss * 1

    assert_backends_agree(build, lambda: {"m": Filtered(8, 4, bias=False)}, rows(5, 6), sgd)


@pytest.mark.parametrize(
    "view",
    [lambda z: z.diagonal(), lambda z: z[1:3], lambda z: z.as_strided((2, 2), (4, 1)), lambda z: z.t()[:2]],
    ids=["diagonal", "rows", "strides", "columns"],
)
def test_writes_through_views_of_complex_tensors(view):
    def build(self, x):
        z = torch.fft.fft(x.view(4, 4))
        view(z).mul_(2).add_(1j)
        return torch.view_as_real(torch.cat([z @ z, z.t() @ z.conj()])), torch.view_as_real(z.sum(0))

    assert_backends_agree(build, dict, rows(16))


@pytest.mark.parametrize(
    "write",
    [
        lambda h, i: h.index_add(0, i, h),
        lambda h, i: h.index_copy(0, i, h.t()),
        lambda h, i: h.index_put((i[:4],), h[2:6]),
        lambda h, i: (h * 4).long().clone().index_put(((h * 4).long()[:, 0],), (h * 4).long()[:, 1:2]),
    ],
    ids=["rows", "columns", "a part", "indices"],
)
def test_a_tensor_is_written_with_a_part_of_itself(write):
    def build(self, x, i):
        return write(x * 2, i)

    assert_backends_agree(build, dict, [(torch.rand(9, 9), torch.tensor([4, 1, 7, 0, 8, 3, 6, 2, 5]))])


def test_a_tensor_keeps_its_strides_after_a_write_through_a_view():
    def build(self, x, i):
        y, z = x * 2, x * 3
        y.movedim(0, -1).put_(i[:3], x.flatten()[:3])
        z.t()[1:].index_put_((i[:2],), x[0, 0])
        return y.view(-1).softmax(0), z.view(-1).softmax(0)

    assert_backends_agree(build, dict, [(torch.rand(5, 4), torch.tensor([2, 1, 0]))])


def test_a_buffer_is_read_in_several_ways_after_its_write():
    class Bank(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.arange(320, dtype=torch.float64).view(8, 5, 8).sin())

    def build(self, x):
        rows = self.bank.rows
        rows.add_(x)
        return rows.softmax(-1), rows.sum(0)

    x = torch.ones(8, 5, 8, dtype=torch.float64)
    assert_backends_agree(build, lambda: {"bank": Bank()}, [(x,), (x,)], tolerance=1e-12)


def test_sums_in_kernels_of_transposed_tiles_end_where_their_memory_does():
    shift = torch.nn.Parameter(torch.linspace(-1, 1, 19, dtype=torch.float64))

    def build(self, x):
        turned = (x + shift).permute(2, 0, 1).contiguous().permute(1, 2, 0)
        result = turned / (turned.std(dim=1, keepdim=True) + 1)
        return result.detach(), *torch.autograd.grad((result * result).mean(), shift)

    assert_backends_agree(
        build, dict, [(torch.arange(760, dtype=torch.float64).view(5, 8, 19).sin(),)], tolerance=1e-12
    )


class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 4))


def results_and_storages(backend):
    """Return the results of two calls as they are after the second one, and which of them share memory."""

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.queue = Queue()
            self.config.set_backend(backend)

        def build(self, x):
            rows = self.queue.rows
            first, flat = rows[0], rows.view(-1)  # views from before the write
            y = x * 2
            rows.add_(y)
            total = flat.sum()
            y.add_(1)
            pieces = rows.t().split(2)
            total = total.view(1).squeeze_()  # another shape for a tensor that shows nothing of the buffer
            return rows, first, flat, total, *pieces, y, y.view(-1), y[0], x, x[1:], y.unbind(1)[2]

    graph, x = G(), torch.arange(12.0).view(3, 4)
    results = [result for _ in range(2) for result in graph(x)]
    memory = [t.untyped_storage().data_ptr() for t in (graph.queue.rows, x, *results)]
    return results, [memory.index(address) for address in memory]


def test_results_that_share_memory_share_it_on_inductor():
    """Views of a buffer show what later calls write into it."""
    (results, storages), (expected, expected_storages) = map(results_and_storages, ("inductor", "aten"))
    assert storages == expected_storages
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(results, expected, strict=True))


def test_the_update_writes_memory_that_a_returned_view_shows():
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = nn.Linear(3, 2)
            self.add_optimizer(torch.optim.SGD(self.m.parameters(), lr=0.1))
            self.config.set_backend("inductor")

        def build(self, x):
            loss = self.m(x).square().mean()
            loss.backward()
            return loss, self.m.weight.detach().t()

    graph = G()
    view = graph(torch.ones(4, 3))[1]
    assert torch.equal(view, graph.m.weight.detach().t())
    graph(torch.ones(4, 3))
    assert torch.equal(view, graph.m.weight.detach().t())


def test_a_write_into_an_expanded_tensor_reaches_its_one_element():
    rows = torch.tensor([1, 3])

    class Fill(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

        def build(self, x):
            y = x * 2
            y[:1].expand(5).index_fill_(0, rows, -1.5)
            return y

    assert Fill()(torch.arange(5.0)).tolist() == [-1.5, 2.0, 4.0, 6.0, 8.0]
