"""Rows of _tables/differences/nn.py where torch's meaning is kept."""

import inspect
import itertools

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.nn import functional as F


def test_trunc_normal_does_not_clamp():
    flow.manual_seed(0)
    x = flow.nn.init.trunc_normal_(flow.empty(20000), std=1.0)
    assert (x.abs() < 2).all() and abs(
        x.std().item() - 0.88
    ) < 0.02  # OneFlow's: 4.5 % at the bounds, deviation 0.96


def test_orthogonal_works_in_place():
    w = flow.empty(3, 5)
    assert flow.nn.init.orthogonal_(w) is w
    torch.testing.assert_close(w @ w.T, torch.eye(3))


@pytest.mark.parametrize(
    "name, shape",
    [
        ("BatchNorm1d", (1, 3)),
        ("BatchNorm1d", (1, 3, 1)),
        ("BatchNorm2d", (1, 3, 1, 1)),
        ("BatchNorm3d", (1, 3, 1, 1, 1)),
    ],
)
def test_batch_norm_trains_on_one_value_per_channel(name, shape):
    """OneFlow 0.9.0: the bias, gradients of 0 but for the bias, running_mean as ever; its running_var
    is NaN.
    """
    module, x = getattr(flow.nn, name)(3, momentum=0.25), flow.arange(3.0).reshape(shape).requires_grad_()
    flow.nn.init.uniform_(module.bias)
    out = module(x)
    out.backward(flow.full(shape, 2.0))
    assert flow.equal(out.flatten(), module.bias) and out.shape == shape and module.num_batches_tracked == 1
    assert (
        not x.grad.any()
        and not module.weight.grad.any()
        and flow.equal(module.bias.grad, flow.full((3,), 2.0))
    )
    assert module.running_mean.tolist() == [0, 0.25, 0.5] and module.running_var.tolist() == [0.75] * 3
    assert flow.equal(flow.nn.functional.batch_norm(x, None, None, None, module.bias, True), out)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        getattr(flow.nn, name)(3, momentum=None)(x)
    with pytest.raises(ValueError, match="expected 4D input"):
        flow.nn.BatchNorm2d(3)(flow.ones(1, 3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        getattr(torch.nn, name)(3)(x)


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_batch_norm_of_one_value_per_channel_in_a_graph(backend):
    class Train(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
            self.config.set_backend(backend)

        def build(self, x):
            loss = self.model(x).square().sum()
            loss.backward()
            return loss

    def net():
        flow.manual_seed(0)
        return flow.nn.Sequential(
            flow.nn.Conv2d(2, 3, 4), flow.nn.BatchNorm2d(3), flow.nn.ReLU(), flow.nn.Conv2d(3, 2, 1)
        ).double()

    eager, compiled, x = net(), net(), flow.randn(1, 2, 4, 4, dtype=flow.float64)
    optimizer, step = flow.optim.SGD(eager.parameters(), lr=0.1, momentum=0.9), Train(compiled)
    for _ in range(3):
        loss = eager(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x), loss)
    for a, b in zip(eager.state_dict().values(), compiled.state_dict().values()):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", [None, "aten", "inductor"])
@pytest.mark.parametrize(
    "layer",
    [
        flow.nn.BatchNorm2d(6),
        flow.nn.BatchNorm2d(6).eval(),
        flow.nn.BatchNorm3d(6),
        flow.nn.InstanceNorm2d(6),
        flow.nn.InstanceNorm3d(6),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: flow._C.normalization(x, is_training=True),
    ],
    ids=["2d", "2d eval", "3d", "instance 2d", "instance 3d", "function", "operator"],
)
def test_gradient_of_one_image_through_a_norm(layer, backend):
    """The gradient arrives channel by channel; the same one laid out row by row is the measure."""
    layer = layer.double() if isinstance(layer, flow.nn.Module) else layer
    shape = (1, 6, 2, 2, 3) if "3d" in type(layer).__name__ else (1, 6, 4, 3)
    x, g = flow.randn(shape, dtype=flow.float64, requires_grad=True), flow.randn(1, 12, 6, dtype=flow.float64)

    def of(x, g):
        return flow.autograd.grad((layer(x).flatten(2).transpose(1, 2) * g).sum(), x)[0]

    class Of(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend(backend)

        def build(self, x, g):
            return of(x, g)

    [right] = flow.autograd.grad(layer(x), x, g.transpose(1, 2).reshape(shape).contiguous())
    torch.testing.assert_close((of if backend is None else Of())(x, g), right)


@pytest.mark.parametrize(
    "name, shape",
    [("InstanceNorm2d", (3, 2, 4, 3)), ("InstanceNorm3d", (3, 2, 2, 2, 3)), ("BatchNorm2d", (3, 2, 4, 3))],
)
def test_gradient_of_a_batch_through_a_norm(name, shape):
    """The gradient comes from a sequence of pixels first, as transformers take it."""
    layer, x = getattr(flow.nn, name)(2).double(), flow.randn(shape, dtype=flow.float64, requires_grad=True)
    g = flow.randn(12, 3, 2, dtype=flow.float64)
    (layer(x).flatten(2).permute(2, 0, 1) * g).sum().backward()
    [right] = flow.autograd.grad(layer(x), x, g.permute(1, 2, 0).reshape(shape).contiguous())
    torch.testing.assert_close(x.grad, right)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 4, 1),
        (2, 3, 1, 4),
        (1, 3, 4, 1),
        (1, 3, 4, 2),
        (2, 3, 4, 1, 1),
        (2, 3, 1, 2, 2),
        (1, 3, 2, 2, 1),
    ],
)
def test_gradient_of_a_norm_where_a_size_is_1(shape, train):
    """In every order that input and gradient may lie in memory; float64 in the usual order is the measure."""
    layer = (flow.nn.BatchNorm2d if len(shape) == 4 else flow.nn.BatchNorm3d)(3).double().train(train)
    x, g = flow.randn(shape, dtype=flow.float64), flow.randn(shape, dtype=flow.float64)

    def grads(x, g):
        x = x.detach().requires_grad_()
        return flow.autograd.grad(layer(x), [x, layer.weight, layer.bias], g)

    right, orders = grads(x, g), list(itertools.permutations(range(len(shape))))
    layouts = [(o, tuple(o.index(d) for d in range(len(shape)))) for o in orders]
    laid = [[t.permute(o).contiguous().permute(back) for o, back in layouts] for t in (x, g)]
    if len(shape) == 5:
        laid = [laid[0][::7], laid[1][::5]]
    for a, b in itertools.product(*laid):
        torch.testing.assert_close(
            grads(a, b), right, msg=lambda m: f"strides {a.stride()} and {b.stride()}: {m}"
        )


@pytest.mark.parametrize("name", ["ELU", "ReLU6", "Hardswish", "Hardtanh", "SELU", "SiLU", "Mish"])
def test_inplace_is_honoured(name):
    module, x = getattr(flow.nn, name)(inplace=True), flow.tensor([-1.5, 2.5])
    assert module(x) is x and x[0] != -1.5
    with pytest.raises(RuntimeError, match="leaf"):
        module(flow.ones(2, requires_grad=True))


def test_layers_take_their_input_by_torchs_keyword():
    image, ids = flow.ones(1, 2, 4, 4), flow.zeros(3, dtype=flow.int64)
    layers = [(flow.nn.Conv2d(2, 3, 1), image, "x"), (flow.nn.Embedding(4, 2), ids, "indices")]
    for layer, value, keyword in layers:
        assert flow.equal(layer(value), layer(input=value))
        with pytest.raises(TypeError, match=keyword):
            layer(**{keyword: value})


def test_hardsigmoid_has_one_derivative():
    x = flow.tensor([0.5], requires_grad=True)
    (gradient,) = flow.autograd.grad(F.hardsigmoid(x).sum(), x, create_graph=True)
    assert gradient.item() == pytest.approx(1 / 6)
    with pytest.raises(RuntimeError, match="hardsigmoid_backward"):
        gradient.backward()


def test_module_zero_grad_is_torchs():
    net = flow.nn.Linear(1, 1)
    net(flow.ones(1, 1)).backward()
    net.zero_grad(set_to_none=False)
    assert net.weight.grad.item() == 0
    net.zero_grad()
    assert net.weight.grad is None


def test_kept_as_torchs():
    assert F.interpolate is torch.nn.functional.interpolate
    assert flow.nn.MaxPool2d(2).kernel_size == 2 and flow.nn.Upsample(scale_factor=2).scale_factor == 2.0
    assert list(flow.nn.BCEWithLogitsLoss(pos_weight=flow.ones(2)).state_dict()) == ["pos_weight"]
    packed = flow.nn.utils.rnn.pack_sequence([flow.ones(3), flow.ones(2)])
    assert flow.nn.utils.rnn.pad_packed_sequence(packed)[1].dtype is torch.int64


@pytest.mark.parametrize(
    "loss",
    [F.kl_div, lambda x, t, log, reduction: flow.nn.KLDivLoss(reduction, log)(x, t), flow._C.kl_div_loss],
)
def test_kl_div_of_negative_targets(loss):
    x = flow.tensor([-0.5, 0.25, 1.0], requires_grad=True)
    target = flow.tensor([0.5, -2.0, 0.0])
    got = loss(x, target, False, "none")
    assert got.tolist() == [pytest.approx(0.5 * (0.5 - float(np.log(2)))), 0.0, 0.0]
    got.sum().backward()
    assert x.grad.tolist() == [-0.5, 0.0, 0.0]
    assert (
        loss(x, target, True, "none").tolist()
        == torch.nn.functional.kl_div(x, target, reduction="none", log_target=True).tolist()
    )


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_max_unpool_puts_the_maxima_back(dimensions):
    pool = getattr(flow.nn, f"MaxPool{dimensions}d")(2, return_indices=True)
    unpool = getattr(flow.nn, f"MaxUnpool{dimensions}d")(2)
    x = flow.rand(2, 3, *[4] * dimensions) + 1
    maxima, indices = pool(x)
    y = unpool(maxima, indices)
    assert y.shape == x.shape and flow.equal(y[y != 0], x[y != 0])
    assert flow.equal(pool(y)[0], maxima) and (y != 0).sum() == maxima.numel()
    assert inspect.signature(unpool.forward).return_annotation is flow.Tensor
