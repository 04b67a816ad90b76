"""oneflow.autograd: callable Functions, grad's positions, switches of recording."""

import warnings

import pytest
import torch

import oneflow as flow


class Scale(flow.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor=2.0):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        assert x.shape == g.shape
        return g * ctx.factor, None


def test_function_may_be_called_as_an_instance():
    x = flow.ones(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = Scale()(x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
    z = flow.ones(3, requires_grad=True)
    Scale.apply(z, 5.0).sum().backward()
    assert torch.equal(z.grad, torch.full((3,), 5.0))
    assert issubclass(flow.autograd.Function, torch.autograd.Function)


def test_function_supports_torchs_extras():
    class Cube(flow.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    got = torch.func.vmap(torch.func.grad(lambda t: Cube()(t)))(flow.tensor([1.0, 2.0]))
    assert torch.equal(got, torch.tensor([3.0, 12.0]))
    x = flow.tensor([1.5], dtype=flow.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Cube.apply, (x,)) and torch.autograd.gradgradcheck(Cube.apply, (x,))


def test_context_names():
    ctx = flow.autograd.Function.ctx
    assert ctx.save_for_backward and ctx.mark_non_differentiable and ctx.saved_tensors


def test_grad_positions():
    x, y = flow.ones(2, requires_grad=True), flow.ones(2, requires_grad=True)
    loss = (x * x).sum()
    gx, gy = flow.autograd.grad(loss, [x, y], None, True, True, True)
    assert torch.equal(gx, torch.full((2,), 2.0)) and gx.requires_grad and gy is None
    (g2,) = flow.autograd.grad(gx.sum(), x)
    assert torch.equal(g2, torch.full((2,), 2.0))
    with pytest.raises(RuntimeError, match="allow_unused"):
        flow.autograd.grad((x * x).sum(), [x, y])
    assert torch.equal(flow.autograd.grad(x * 3, x, out_grads=flow.ones(2))[0], torch.full((2,), 3.0))
    assert torch.equal(
        flow.autograd.grad([(x * 3).sum()], [x], is_grads_batched=False)[0], torch.full((2,), 3.0)
    )


def test_backward():
    x = flow.ones(2, requires_grad=True)
    flow.autograd.backward(x * 3, flow.ones(2))
    assert torch.equal(x.grad, torch.full((2,), 3.0))
    from oneflow.autograd import autograd, autograd_function, autograd_mode

    assert autograd.grad is flow.autograd.grad and autograd_function.Function is flow.autograd.Function
    assert autograd_mode.no_grad is flow.no_grad is torch.no_grad


def test_inference_mode_makes_ordinary_tensors():
    x = flow.ones(2, requires_grad=True)
    with flow.inference_mode():
        assert not flow.is_grad_enabled()
        y = x * 2
    assert not y.is_inference() and not y.requires_grad
    y.add_(1)
    y.requires_grad_()
    (y * x).sum().backward()
    assert torch.equal(y.grad, torch.ones(2))
    with flow.no_grad(), flow.inference_mode(False):
        assert flow.is_grad_enabled()

    @flow.inference_mode()
    def f():
        return flow.is_grad_enabled()

    @flow.inference_mode
    def g():
        return flow.is_grad_enabled()

    assert not f() and not g() and flow.is_grad_enabled()


def test_set_grad_enabled():
    x = flow.ones(1, requires_grad=True)
    with flow.set_grad_enabled(is_train=False):
        assert not (x * 2).requires_grad
    with flow.no_grad(), flow.set_grad_enabled(True):
        assert (x * 2).requires_grad
    assert flow.set_grad_enabled(False)(lambda: x * 2)().requires_grad is False
    flow.set_grad_enabled(mode=False)
    try:
        assert not flow.is_grad_enabled()  # torch's effect: the plain call switches (OneFlow's does nothing)
    finally:
        flow.set_grad_enabled(True)


def test_functional_graph_and_profiler():
    assert flow.autograd.functional.jacobian is torch.autograd.functional.jacobian is flow.autograd.jacobian
    assert flow.autograd.graph.saved_tensors_hooks is torch.autograd.graph.saved_tensors_hooks
    from oneflow.autograd.profiler import record_function

    assert record_function is torch.autograd.profiler.record_function
    got = flow.autograd.functional.hessian(lambda t: (t**3).sum(), flow.tensor([2.0]))
    assert torch.equal(got, torch.tensor([[12.0]]))


def test_checkpoint_does_not_reenter():
    from oneflow.utils.checkpoint import checkpoint, checkpoint_sequential

    layer, x, inside = flow.nn.Linear(2, 2), torch.ones(1, 2), torch.ones(1, 2, requires_grad=True)
    checkpoint(layer, x).sum().backward()
    assert torch.equal(layer.weight.grad, torch.ones(2, 2))
    checkpoint(lambda d, k=1: {"y": layer(d["x"]) * k}, {"x": inside}, k=3)["y"].sum().backward()
    assert inside.grad is not None and torch.equal(layer.weight.grad, torch.full((2, 2), 4.0))
    assert (
        flow.utils.checkpoint.checkpoint is checkpoint
        and checkpoint_sequential is torch.utils.checkpoint.checkpoint_sequential
    )
    with pytest.warns(UserWarning, match="None of the inputs"):
        assert not checkpoint(layer, x, use_reentrant=True).requires_grad
