"""flow._C.fused_* inside build() gives the same values on the aten and inductor backends."""

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.compile.inductor import decompositions
from oneflow._kernels import _ext
from oneflow._kernels.kernels import POINT

C = flow._C
needs_kernels = pytest.mark.skipif(_ext.status() != "loaded", reason=f"oneflow._ext: {_ext.status()}")


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", decompositions._POINT)
def test_plain_form_of_an_elementwise_kernel(name, dtype):
    torch.manual_seed(0)
    inputs = [
        torch.randn(5, 7).mul(3).to(dtype)
        for _ in range({"quick_gelu": 1, "square_relu": 1, "fast_gelu_mul_backward": 3}.get(name, 2))
    ]
    outputs = 2 if name == "fast_gelu_mul_backward" else 1
    plain = decompositions._pointwise(POINT[name], inputs, outputs, [])
    kernel = torch.ops.oneflow.pointwise(POINT[name], inputs, outputs, [])
    for a, b in zip(plain, kernel, strict=True):
        assert a.dtype is b.dtype is dtype
        assert (a - b).abs().max() <= 8 * torch.finfo(dtype).eps * b.abs().max(), (
            "the same formula in another order, units of the last place"
        )


@needs_kernels
@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_plain_form_of_the_lower_triangle(diagonal):
    x = torch.randn(2, 4, 6)
    assert torch.equal(
        decompositions._scale_tril(x, diagonal, 0.5, -3.0),
        torch.ops.oneflow.scale_tril(x, diagonal, 0.5, -3.0),
    )


def losses(backend, function, *tensors):
    """Three training steps of function over parameters of these values."""
    parameters = nn.ParameterList([nn.Parameter(t.clone()) for t in tensors])

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.p = parameters
            self.add_optimizer(torch.optim.SGD(parameters, lr=1e-3))
            self.config.set_backend(backend)

        def build(self):
            loss = function(*self.p).square().sum()
            loss.backward()
            return loss

    graph = G()
    torch.manual_seed(3)
    return torch.stack([graph() for _ in range(3)])


def every_kind(x, bias):
    keep = torch.ones(8, 8, dtype=torch.bool).tril()
    y = C.fused_bias_add_gelu(x, bias, axis=2)
    y = C.quick_gelu(y) + C.square_relu(x) + C.fused_fast_gelu_mul(x, y)
    y = C.fused_scale_mask_softmax(y, keep, fill_value=-1e4, scale=0.5) + C.fused_scale_tril(y, 0, 0.0, 0.3)
    y = y + C.fused_scale_mask_softmax_dropout(y, keep, fill_value=-1e4, scale=0.5, p=0.2)[0]
    return C.fused_bias_add_dropout(y, bias, p=0.1, axis=2)


def boxes(a, b):
    return C.fused_get_intersection_area(*a.abs().unbind(0), *b.abs().unbind(0))


@pytest.mark.slow
@pytest.mark.compiler
@needs_kernels
@pytest.mark.parametrize(
    "function, shapes",
    [(every_kind, [(2, 8, 8), (8,)]), (boxes, [(4, 9), (4, 9)])],
    ids=["transformer", "boxes"],
)
def test_inductor_agrees_with_aten(function, shapes):
    """This includes dropout masks, which the kernels sample from the same seed. An operator that returns a
    list crashed inductor's C++ wrapper.
    """
    torch.manual_seed(0)
    tensors = [torch.randn(*s) for s in shapes]
    assert torch.allclose(
        losses("inductor", function, *tensors), losses("aten", function, *tensors), rtol=1e-5
    )
