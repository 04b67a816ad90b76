"""torch.func, forward-mode derivatives and tracers inside build() give the values of eager mode."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jvp, linearize, vmap

import oneflow as flow


class Program(flow.nn.Graph):
    def __init__(self, model, function, backend="aten"):
        super().__init__()
        self.model, self.function = model, function
        self.config.set_backend(backend)

    def build(self, x, t):
        return self.function(self.model.to(nn.Module), x, t)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


x, t = torch.linspace(-1, 1, 6).view(2, 3), torch.linspace(2, -1, 6).view(2, 3)


def duals(m, x, t):
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(2 * m(torch.autograd.forward_ad.make_dual(x, t) / 3) + 1)


FUNCTIONS = {
    "dual numbers": duals,
    "hessian of each sample": lambda m, x, t: vmap(hessian(lambda row: m(row).square().sum()))(x),
    "hessian of a plain function of each sample": lambda m, x, t: vmap(hessian(lambda row: row.sin().sum()))(
        x
    ),
    "forward over backward": lambda m, x, t: jvp(grad(lambda row: m(row).square().sum()), (x[0],), (t[0],)),
    "forward over backward of a row": lambda m, x, t: jvp(
        grad(lambda row: m[0](row).sum()), (x[0],), (t[1],)
    ),
    "forward over backward of several": lambda m, x, t: jacfwd(grad(lambda rows: m(rows).square().sum()))(x),
    "jacobian in forward mode": lambda m, x, t: torch.autograd.functional.jacobian(
        lambda v: m(v).sum(0), x, strategy="forward-mode", vectorize=True
    ),
    "products with a hessian": lambda m, x, t: jvp(
        grad(lambda p: functional_call(m, p, x).square().sum()),
        (dict(m.named_parameters()),),
        ({k: v * 2 for k, v in m.named_parameters()},),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_derivatives_equal_eager(model, name):
    function = FUNCTIONS[name]
    torch.testing.assert_close(Program(model, function)(x, t), function(model, x, t), rtol=0, atol=0)


def test_a_linearized_function_is_recorded_not_traced(model):
    """torch traces it with make_fx; of symbolic tensors that gave a graph of constants without values, and
    whatever was in memory.
    """

    def function(m, x, t):
        value, tangent_of = linearize(lambda v: {"a": m(v), "b": (v.sin(), 2 * v)}, x)
        return value, tangent_of(t), tangent_of(2 * t)

    with torch.no_grad():
        expected, graph = function(model, x, t), Program(model, function)
        torch.testing.assert_close(graph(x, t), expected, rtol=0, atol=0)
        torch.testing.assert_close(graph(t, x), function(model, t, x), rtol=0, atol=0)
    assert linearize(torch.sin, x)[1](t).equal(t * x.cos())  # outside, torch's own


def test_make_fx_in_build_is_an_error_that_says_so(model):
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(RuntimeError, match="make_fx"):
        Program(model, lambda m, x, t: make_fx(lambda v: m(v).sin())(x)(t))(x, t)
    assert make_fx(torch.sin)(x)(x).equal(x.sin())
