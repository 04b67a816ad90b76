"""OneFlow-style tests of functions: math, reductions, shapes, indexing, linear algebra, complex, empty
tensors.
"""

import unittest

import oneflow as flow
import oneflow.unittest
from oneflow.test_utils.automated_test_util import *


@flow.unittest.skip_unless_1n1d()
class TestFunctions(flow.unittest.TestCase):
    @autotest(n=5, check_graph=True)
    def test_unary(test_case):
        x = random_tensor(ndim=random(0, 4).to(int), low=0.1, high=0.9).to(random_device())
        return [
            f(x)
            for f in (
                torch.abs,
                torch.exp,
                torch.log,
                torch.sqrt,
                torch.rsqrt,
                torch.sin,
                torch.cos,
                torch.tan,
                torch.asin,
                torch.acos,
                torch.atan,
                torch.sinh,
                torch.cosh,
                torch.tanh,
                torch.erf,
                torch.erfc,
                torch.sigmoid,
                torch.square,
                torch.reciprocal,
                torch.floor,
                torch.ceil,
                torch.round,
                torch.trunc,
                torch.sign,
                torch.neg,
                torch.log1p,
                torch.expm1,
                torch.log2,
                torch.digamma,
                torch.lgamma,
            )
        ]

    @autotest(n=5)
    def test_binary(test_case):
        x, y = random_tensor(ndim=3, dim0=2, dim1=1), random_tensor(ndim=2, dim0=3, low=1, high=2)
        x = torch.reshape(x, shape=(2, 1, -1))
        y = y[:, :1]
        return [
            f(x, y)
            for f in (
                torch.add,
                torch.sub,
                torch.mul,
                torch.div,
                torch.pow,
                torch.maximum,
                torch.minimum,
                torch.atan2,
                torch.fmod,
            )
        ] + [
            torch.add(x, y, alpha=random(2, 5).to(float)),
            torch.lerp(x, y, 0.5),
            torch.floor_divide(x.detach(), y.detach()),
        ]

    @autotest(n=5)
    def test_comparisons_and_logic(test_case):
        x, y = (
            random_tensor(2, 3, 4, low=0, high=3, dtype=int),
            random_tensor(2, 3, 4, low=0, high=3, dtype=int),
        )
        return [
            f(x, y)
            for f in (
                torch.eq,
                torch.ne,
                torch.lt,
                torch.le,
                torch.gt,
                torch.ge,
                torch.logical_and,
                torch.logical_or,
                torch.logical_xor,
                torch.bitwise_and,
                torch.bitwise_or,
            )
        ] + [torch.logical_not(x), x == y, x > 1, ~(x < y), torch.isnan(x)]

    @autotest(n=5)
    def test_reductions(test_case):
        x = random_tensor(ndim=4, dim0=2)
        dim = random(0, 4).to(int)
        keep = random_bool()
        return (
            torch.sum(x, dim=dim, keepdim=keep),
            torch.mean(x, dim=dim),
            torch.prod(x, dim=1),
            torch.amax(x, dim=dim),
            torch.amin(x, dim),
            torch.std(x, dim=0),
            torch.var(x, dim=0, unbiased=random_bool()),
            torch.logsumexp(x, dim=dim),
            torch.cumsum(x, dim=dim),
            torch.cumprod(x, dim=dim),
            torch.norm(x),
            torch.all(x > 0),
            torch.any(x > 2),
            torch.median(x),
            torch.argmax(x, dim=dim),
            torch.sum(x, dim=(0, 2)),
        )

    @autotest(n=5)
    def test_several_outputs(test_case):
        x = random_tensor(ndim=2, dim0=4, dim1=6)
        values, indices = torch.topk(x, random(1, 4).to(int))
        s, i = torch.sort(x, dim=1, descending=random_bool())
        mx = torch.max(x, dim=1)
        a, b, c = torch.chunk(x, 3, dim=1)
        u = torch.unbind(x, dim=0)
        grid = torch.meshgrid(x[0], x[1], indexing="ij")
        return values, indices, s, i, mx, a, c, u, grid

    @autotest(n=5)
    def test_shapes(test_case):
        x = random_tensor(ndim=3, dim0=2, dim1=3, dim2=4)
        return [
            torch.reshape(x, shape=(-1,)),
            torch.transpose(x, 0, 2),
            torch.permute(x, (2, 0, 1)),
            torch.unsqueeze(x, random(0, 3).to(int)),
            torch.squeeze(x),
            torch.flatten(x, start_dim=random(0, 2).to(int) | nothing()),
            torch.cat([x, x], dim=1),
            torch.stack((x, x * 2), 0),
            torch.flip(x, [0, 2]),
            torch.roll(x, 1, 0),
            torch.tile(x, (2, 1)),
            torch.narrow(x, 1, 0, 2),
            torch.movedim(x, 0, 1),
            torch.triu(x),
            torch.tril(x, diagonal=random(-1, 2).to(int)),
            torch.diag(x[0]),
            torch.diagonal(x, dim1=1, dim2=2),
            torch.broadcast_to(x, (5, 2, 3, 4)),
            torch.repeat_interleave(x, 2, dim=0),
            torch.nn.functional.pad(x, (1, 2), value=0.5),
            x.view(6, 4),
            x.expand(2, 2, 3, 4),
            x.mT,
        ]

    @autotest(n=5)
    def test_indexing_functions(test_case):
        x = random_tensor(ndim=2, dim0=4, dim1=5)
        index = random_tensor(ndim=2, dim0=4, dim1=5, low=0, high=4, dtype=int)
        row = random_tensor(ndim=1, dim0=3, low=0, high=4, dtype=int)
        return (
            torch.gather(x, 0, index),
            torch.index_select(x, 0, row),
            torch.where(x > 0.5, x, x * 2),
            torch.scatter(x, 0, index, x),
            torch.scatter_add(x, 0, index, x),
            torch.masked_fill(x, x > 0.5, 3.0),
            torch.take(x, row),
            torch.clamp(x, min=0.2, max=0.7),
            torch.nn.functional.one_hot(row, 5),
            row,
        )

    @autotest(n=5)
    def test_shapes_that_depend_on_values(test_case):
        x = random_tensor(ndim=2, dim0=3, dim1=4, requires_grad=False)
        return (
            torch.nonzero(x > 0.5),
            torch.masked_select(x, x > 0.5),
            torch.unique((x * 3).long()),
            torch.bincount((x * 3).long()[0]),
        )

    @autotest(n=5, rtol=1e-3, atol=1e-4)
    def test_linear_algebra(test_case):
        n, m, k = (random(1, 5).to(int) for _ in range(3))
        a, b = random_tensor(2, n, m), random_tensor(2, m, k)
        batch = random_tensor(3, 2, n, m)
        v = random_tensor(1, m)
        return (
            torch.matmul(a, b),
            torch.mm(a, b),
            a @ b,
            torch.matmul(batch, b),
            torch.mv(a, v),
            torch.dot(v, v),
            torch.einsum("ij,jk->ik", a, b),
            torch.bmm(batch, torch.transpose(batch, 1, 2)),
            torch.addmm(torch.matmul(a, b), a, b, beta=0.5, alpha=2),
            torch.outer(v, v),
            torch.linalg.norm(a, 2, dim=1),
            torch.tensordot(a, b, dims=1),
        )

    @autotest(n=5)
    def test_functionals(test_case):
        x = random_tensor(ndim=4, dim0=1, dim1=4, dim2=6, dim3=6)
        F = torch.nn.functional
        return (
            F.relu(x),
            F.softmax(x, dim=random(0, 4).to(int)),
            F.log_softmax(x, dim=1),
            F.gelu(x),
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.pixel_shuffle(x, 2),
            F.normalize(x, dim=1),
            F.layer_norm(x, (6,)),
            F.adaptive_avg_pool2d(x, 2),
            F.unfold(x, kernel_size=2),
            F.softplus(x),
            F.leaky_relu(x, 0.1),
            F.hardtanh(x),
            F.elu(x),
            F.silu(x),
            F.conv2d(x, random_tensor(ndim=4, dim0=2, dim1=4, dim2=3, dim3=3), padding=1),
            F.grid_sample(
                x, random_tensor(ndim=4, dim0=1, dim1=3, dim2=3, dim3=2, low=-1, high=1), align_corners=False
            ),
            F.cosine_similarity(x, x * 2 + 1, dim=1),
        )

    @autotest(n=5, auto_backward=True)
    def test_complex(test_case):
        x = random_tensor(ndim=2, dtype=complex)
        test_case.assertEqual(x.oneflow.dtype, flow.complex64)
        y = torch.conj(x) * x + 1j
        return y, torch.real(y), torch.imag(y), torch.abs(y), torch.view_as_real(x), torch.fft.fft(x)

    @autotest(n=5)
    def test_no_elements(test_case):
        x = random_tensor(ndim=4, dim0=random(1, 3), dim1=0)
        m = torch.nn.Linear(2, 3)
        return torch.relu(x), x.sum(), torch.cat([x, x], dim=1), m(random_tensor(2, 0, 2)), x.view(-1)

    @autotest(n=5, auto_backward=False)
    def test_creation(test_case):
        shape = (random(1, 4).to(int).value(), 2)
        return (
            torch.zeros(shape),
            torch.ones(*shape),
            torch.full(shape, 3.5),
            torch.arange(0, 10, 2),
            torch.linspace(0, 1, 5),
            torch.eye(3),
            torch.zeros(shape, dtype=torch.int32),
            torch.tensor([1, 2, 3]),
            torch.rand(3),
            torch.randn(2, 2),
            torch.randint(0, 5, (3,)),
            torch.empty(2, 3),
            torch.Tensor(2, 3),
            torch.zeros_like(torch.ones(2)),
            torch.randperm(6),
            torch.tensor(2.5).to(torch.float64),
        )

    @autotest(n=8, check_dtype=True, auto_backward="auto")
    def test_dtypes(test_case):
        dtype = random_dtype(["arithmetic", "half", "bfloat16", "bool"])
        x = random_tensor(ndim=2, low=0, high=5).to(dtype)
        test_case.assertEqual(x.oneflow.dtype, dtype.oneflow)
        return x + x, x.to(torch.float32), x.sum(), torch.zeros(2, dtype=dtype), x.type_as(torch.ones(1))

    @autotest(n=3)
    def test_refused_cases_are_drawn_anew(test_case):
        x = random_tensor(ndim=2, dim0=random(1, 4), dim1=2)
        y = random_tensor(ndim=2, dim0=2, dim1=2)
        return torch.cat((x, y), dim=1)  # only one size of three fits

    @autotest(n=3)
    def test_no_grad(test_case):
        x = random_tensor(2)
        with torch.no_grad():
            y = x * 2
        test_case.assertFalse(y.requires_grad.oneflow)
        return y, x * 3

    @autotest(n=5)
    def test_oneof_chooses_functions(test_case):
        f = oneof(torch.sin, torch.cos, torch.exp)
        g = oneof(torch.add, torch.mul, possibility=0.25)
        x = random_tensor(2)
        return g(f(x), x)


if __name__ == "__main__":
    unittest.main()
