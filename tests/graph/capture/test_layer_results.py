"""The hand-written symbolic results of layers and losses agree with the kernels; torch computes all
others.
"""

import gc

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from oneflow._graph.capture.results.frequent_results import known_results
from oneflow._graph.capture.results.meta_kernels import new_fake
from oneflow._graph.garbage_collection import paused_collection, rare_collection

aten = torch.ops.aten
last = torch.channels_last


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


def convolution(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, transposed=False):
    windows = [[n] * (x.dim() - 2) for n in (stride, padding, dilation)]
    return (x, weight, bias, *windows, transposed, [0] * (x.dim() - 2), groups)


def gradient_of_convolution(*args, mask=(True, True, True), **options):
    forward = convolution(*args, **options)
    grad = torch.ones_like(aten.convolution.default(*forward))
    return (grad, *forward[:2], [forward[1].shape[0]], *forward[3:], list(mask))


def layer_norm_gradient(x, shape, weight, bias, mask=(True, True, True)):
    out, mean, variance = aten.native_layer_norm.default(x, shape, weight, bias, 1e-5)
    return torch.ones_like(out), x, shape, mean, variance, weight, bias, list(mask)


def loss_gradient(x, target, weight=None, reduction=1):
    loss, total = aten.nll_loss_forward.default(x, target, weight, reduction, -100)
    return torch.ones_like(loss), x, target, weight, reduction, -100, total


LABELS = torch.tensor([0, 2, 1, 1])
USUAL = {
    "convolution": (aten.convolution.default, convolution(randn(2, 4, 9, 7), randn(6, 4, 3, 3), padding=1)),
    "its bias": (aten.convolution.default, convolution(randn(2, 4, 9, 7), randn(6, 4, 3, 3), randn(6), 2)),
    "in groups": (
        aten.convolution.default,
        convolution(randn(2, 4, 9, 7), randn(6, 2, 3, 2), groups=2, dilation=2),
    ),
    "one pixel": (aten.convolution.default, convolution(randn(2, 4, 9, 7), randn(6, 4, 1, 1), stride=2)),
    "volumes": (aten.convolution.default, convolution(randn(2, 4, 5, 6, 7), randn(6, 4, 3, 3, 3), padding=1)),
    "float64": (
        aten.convolution.default,
        convolution(randn(2, 4, 9, 7, dtype=torch.float64), randn(6, 4, 3, 3, dtype=torch.float64)),
    ),
    "gradients": (
        aten.convolution_backward.default,
        gradient_of_convolution(randn(2, 4, 9, 7), randn(6, 4, 3, 3), stride=2),
    ),
    "of the weight": (
        aten.convolution_backward.default,
        gradient_of_convolution(randn(2, 4, 9, 7), randn(6, 4, 1, 1), mask=(False, True, False)),
    ),
    "in groups, gradients": (
        aten.convolution_backward.default,
        gradient_of_convolution(randn(2, 4, 9, 7), randn(4, 1, 3, 3), groups=4),
    ),
    "product": (aten.addmm.default, (randn(5), randn(3, 4), randn(4, 5))),
    "product of transposes": (aten.addmm.default, (randn(5), randn(4, 3).t(), randn(5, 4).t())),
    "layer norm": (aten.native_layer_norm.default, (randn(2, 3, 4), [4], randn(4), randn(4), 1e-5)),
    "of two dimensions": (aten.native_layer_norm.default, (randn(2, 3, 4), [3, 4], randn(3, 4), None, 1e-5)),
    "without weights": (aten.native_layer_norm.default, (randn(2, 3, 4), [4], None, None, 1e-5)),
    "its gradients": (
        aten.native_layer_norm_backward.default,
        layer_norm_gradient(randn(2, 3, 4), [4], randn(4), randn(4)),
    ),
    "without bias": (
        aten.native_layer_norm_backward.default,
        layer_norm_gradient(randn(2, 3, 4), [4], randn(4), None, (True, True, False)),
    ),
    "softmax": (aten._softmax.default, (randn(3, 4), -1, False)),
    "log_softmax": (aten._log_softmax.default, (randn(3, 4), 0, False)),
    "softmax, gradient": (aten._softmax_backward_data.default, (randn(3, 4), randn(3, 4), 1, torch.float32)),
    "log_softmax, gradient": (
        aten._log_softmax_backward_data.default,
        (randn(3, 4), randn(3, 4), -1, torch.float32),
    ),
    "loss": (aten.nll_loss_forward.default, (randn(4, 3), LABELS, None, 1, -100)),
    "of each row": (aten.nll_loss_forward.default, (randn(4, 3), LABELS, randn(3), 0, -100)),
    "loss, gradient": (aten.nll_loss_backward.default, loss_gradient(randn(4, 3), LABELS)),
    "of each row, gradient": (
        aten.nll_loss_backward.default,
        loss_gradient(randn(4, 3), LABELS, randn(3), 0),
    ),
    "zeros": (aten.zeros_like.default, (randn(3, 4),)),
    "ones": (aten.ones_like.default, (randn(3, 1),)),
}
UNUSUAL = {
    "channels last": (
        aten.convolution.default,
        convolution(randn(2, 4, 9, 7).to(memory_format=last), randn(6, 4, 3, 3)),
    ),
    "transposed": (
        aten.convolution.default,
        convolution(randn(2, 4, 9, 7), randn(4, 6, 3, 3), transposed=True),
    ),
    "too few channels": (aten.convolution.default, convolution(randn(2, 3, 9, 7), randn(6, 4, 3, 3))),
    "too large a kernel": (aten.convolution.default, convolution(randn(2, 4, 2, 2), randn(6, 4, 3, 3))),
    "one dimension": (aten.convolution.default, convolution(randn(2, 4, 9), randn(6, 4, 3))),
    "a bias of two dimensions": (aten.addmm.default, (randn(1, 5), randn(3, 4), randn(4, 5))),
    "products that do not fit": (aten.addmm.default, (randn(5), randn(3, 4), randn(3, 5))),
    "a transposed norm": (aten.native_layer_norm.default, (randn(4, 3).t(), [4], None, None, 1e-5)),
    "other dtypes": (aten.native_layer_norm.default, (randn(3, 4).bfloat16(), [4], randn(4), None, 1e-5)),
    "no such dimension": (aten._softmax.default, (randn(3, 4), 2, False)),
    "a single row": (aten.nll_loss_forward.default, (randn(3), torch.tensor(1), None, 1, -100)),
    "too many labels": (aten.nll_loss_forward.default, (randn(3, 3), LABELS, None, 1, -100)),
    "zeros of integers": (aten.zeros_like.default, (randn(3), torch.int64)),
    "zeros of a part": (aten.zeros_like.default, (randn(4, 4)[:, :2],)),
}


def symbolic_results(func, args):
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        return known_results(func, fakes, {})


def described(results):
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [t if t is None else (tuple(t.shape), t.stride(), t.dtype, t.device) for t in results]


@pytest.mark.parametrize("case", USUAL)
def test_results_are_the_kernels(case):
    func, args = USUAL[case]
    assert described(symbolic_results(func, args)) == described(func(*args))


@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_calls_are_left_to_torch(case):
    assert symbolic_results(*UNUSUAL[case]) is None


@pytest.mark.parametrize("func", [aten.add_.Tensor, aten.sub_.Tensor, aten.mul_.Tensor])
def test_counters_are_written_in_place(func):
    with FakeTensorMode():
        counter = torch.zeros(3, dtype=torch.int64)
        assert known_results(func, (counter, 1), {}) is counter
        assert known_results(func, (counter, 0.5), {}) is None
        assert known_results(aten.div_.Tensor, (counter, 2), {}) is None


def test_a_short_fake_tensor_is_like_those_of_the_constructor():
    mode = FakeTensorMode()
    options = {"dtype": torch.float64}
    first, second = (new_fake(mode, torch.device("cpu"), torch.empty, (2, 3), **options) for _ in range(2))
    usual = FakeTensor(mode, torch.empty(2, 3, device="meta", **options), torch.device("cpu"))
    assert vars(second) == vars(usual) == vars(first)
    assert second.device == usual.device and second.dtype is torch.float64
    assert vars(second) is not vars(first)
    with mode:
        assert (second + 1).shape == (2, 3)


def test_a_compilation_collects_garbage_although_the_capture_pauses_it():
    assert gc.isenabled()
    with paused_collection():
        assert not gc.isenabled()
        with rare_collection():
            assert gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_the_user_switched_off_stays_off():
    gc.disable()
    try:
        with paused_collection(), rare_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
