"""The symbolic results of batch norm are those of the kernel: shape, dtype, strides."""
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oneflow._graph.batch_norm import batch_norm_results

aten = torch.ops.aten
last, last_3d = torch.channels_last, torch.channels_last_3d
INPUTS = {
    "2-d": torch.randn(4, 3), "3-d": torch.randn(4, 3, 5), "4-d": torch.randn(2, 3, 4, 5), "channels last": torch.randn(2, 3, 4, 5).to(memory_format=last),
    "5-d": torch.randn(2, 3, 4, 5, 2), "5-d channels last": torch.randn(2, 3, 4, 5, 2).to(memory_format=last_3d), "float64": torch.randn(2, 3, 4, 4, dtype=torch.float64),
}  # fmt: skip
LEFT = {
    "both formats": torch.randn(2, 3, 1, 1), "one channel": torch.randn(2, 1, 4, 4), "neither": torch.randn(2, 4, 3, 5).transpose(1, 2),
    "bfloat16": torch.randn(2, 3, 4, 4).bfloat16(), "transposed": torch.randn(3, 4).t(),
}  # fmt: skip


def arguments(x):
    channels = x.shape[1]
    return [x, torch.ones(channels, dtype=x.dtype), torch.zeros(channels, dtype=x.dtype), torch.zeros(channels, dtype=x.dtype), torch.ones(channels, dtype=x.dtype)]


def symbolic(func, args):
    with FakeTensorMode() as mode:
        return batch_norm_results(func, [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args])


def same(found, real):
    assert len(found) == len(real)
    for f, r in zip(found, real):
        assert (f is None) == (r is None)
        assert f is None or (f.shape, f.dtype, f.stride(), f.device) == (r.shape, r.dtype, r.stride(), r.device)


@pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("affine", [True, False])
def test_as_the_kernel_gives_them(x, affine):
    x, weight, bias, mean, var = arguments(x)
    weight, bias = (weight, bias) if affine else (None, None)
    forward = (x, weight, bias, mean, var, True, 0.1, 1e-5)
    out = aten.native_batch_norm(*forward)
    same(symbolic(aten.native_batch_norm.default, forward), out)
    for wanted in ([True, affine, affine], [False, affine, affine], [True, False, False]):
        backward = (torch.randn_like(x), x, weight, mean, var, out[1], out[2], True, 1e-5, wanted)
        same(symbolic(aten.native_batch_norm_backward.default, backward), [r if w else None for r, w in zip(aten.native_batch_norm_backward(*backward), wanted)])


@pytest.mark.parametrize("x", LEFT.values(), ids=LEFT)
def test_the_rest_is_left_to_torch(x):
    assert symbolic(aten.native_batch_norm.default, (*arguments(x), True, 0.1, 1e-5)) is None


def test_evaluation_and_misfits_are_left_to_torch():
    x = torch.randn(2, 3, 4, 4)
    assert symbolic(aten.native_batch_norm.default, (*arguments(x), False, 0.1, 1e-5)) is None
    assert symbolic(aten.native_batch_norm.default, (x, *arguments(torch.randn(2, 4))[1:], True, 0.1, 1e-5)) is None
    assert symbolic(aten.relu.default, (x,)) is None
