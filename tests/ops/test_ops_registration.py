"""Each custom operator passes torch's opcheck: schema, fake kernel, autograd."""

import pytest
import torch

from oneflow._kernels import _ext, kernels, registration

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")


# --------------------------------------------------------------------------- registration
def samples():
    torch.manual_seed(0)
    ops, d = torch.ops.oneflow, torch.float32
    x, bias, seed = torch.randn(4, 6, requires_grad=True), torch.randn(6, requires_grad=True), torch.tensor(7)
    x4, mask = torch.randn(2, 2, 3, 5, requires_grad=True), torch.rand(2, 2, 3, 5) > 0.5
    cos, sin = torch.rand(1, 3, 4), torch.rand(1, 3, 4)
    picture, rois = torch.randn(1, 2, 5, 5, requires_grad=True), torch.tensor([[0, 1.0, 1, 3, 4]])
    offset, modulation = (
        torch.randn(1, 18, 5, 5, requires_grad=True),
        torch.rand(1, 9, 5, 5, requires_grad=True),
    )
    how = [3, 3], [1, 1], [1, 1], [1, 1], 1
    yield ops.pointwise, (kernels.POINT["fast_gelu_mul"], [x, x.detach().clone().requires_grad_()], 1, [])
    yield ops.fake_quantize, (x, torch.tensor([0.1]), torch.tensor([0.0]), -128.0, 127.0)
    yield ops.bias_gelu, (x, bias, 1)
    yield ops.bias_gelu_backward, (x.detach(), x.detach(), bias.detach(), 1)
    yield ops.bias_gelu_backward_sums, (x.detach(), x.detach(), bias.detach(), 1)
    yield ops.bias_gelu_backward_sums, (x4.detach(), x4.detach(), bias.detach()[:2], 1)
    yield ops.bias_dropout, (x, bias, 1, 0.5, seed)
    yield ops.bias_dropout_backward, (x, 0.5, seed)
    yield ops.bias_dropout_backward_sums, (x.detach(), 1, 0.5, seed)
    yield ops.bias_dropout_backward_sums, (torch.randn(130, 3), 1, 0.5, seed)
    yield ops.masked_softmax, (x4, mask, 0, 2.0, -9.0, 0.5, seed)
    yield ops.masked_softmax, (x4, None, 1, 2.0, -9.0, 0.0, None)
    yield ops.masked_softmax_backward, (x4.detach(), None, x4.detach(), mask, 0, 2.0, 0.0, None)
    yield ops.scale_tril, (x4, 0, 2.0, -9.0)
    yield ops.rotary, (torch.randn(2, 3, 2, 6, requires_grad=True), cos, sin, 1, False, [0, 2, 1, 3], False)
    yield ops.lstm, (torch.randn(3, 2, 20), torch.randn(20, 5), torch.randn(2, 5), torch.randn(2, 5), True)
    yield (
        ops.lstm_backward,
        (None, torch.randn(2, 5), None, torch.rand(5, 3, 2, 5), torch.randn(2, 5), torch.randn(20, 5), False),
    )
    yield ops.rnn, (torch.randn(3, 2, 5), torch.randn(5, 5), torch.randn(5), torch.randn(2, 5), True, False)
    yield ops.rnn_backward, (torch.randn(3, 2, 5), None, torch.rand(3, 2, 5), torch.randn(5, 5), False, True)
    yield ops.gru, (torch.randn(3, 2, 15), torch.randn(15, 5), None, torch.randn(2, 5), True)
    yield (
        ops.gru_backward,
        (
            None,
            torch.randn(2, 5),
            torch.rand(3, 2, 5),
            torch.rand(3, 2, 20),
            torch.randn(2, 5),
            torch.randn(15, 5),
            False,
        ),
    )
    yield ops.pair_dots, (torch.randn(2, 3, 4, requires_grad=True), True)
    yield ops.pair_dots_backward, (torch.randn(2, 6), torch.randn(2, 3, 4), True)
    yield (
        ops.adam_,
        (
            [x.detach().clone()],
            [x.detach()],
            [x.detach().clone()],
            [x.detach().abs()],
            [0.1, 0, 0.9, 0.99, 1, 1e-8, 1, 1],
        ),
    )
    yield ops.momentum_, ([x.detach().clone()], [x.detach()], [x.detach().clone()], [0.1, 0.9, 1, 0, 1, 1])
    yield ops.sgd_, ([x.detach().clone()], [x.detach()], [0.1, 0, 1])
    yield ops.blocks_, ([x.detach().clone()], [x.detach()], 1, [9, 0, 0, 1, -1, -1], [], [])
    yield ops.blocks, ([x.detach(), x.detach()], 2, [9, 1, 2, 3, -1, -1, 6, 0, 1, -1, -1, 0], [0.5])
    yield ops.mm, (torch.randn(5, 7), torch.randn(7, 3))
    yield ops.bmm, (torch.randn(2, 5, 7), torch.randn(2, 7, 3))
    yield ops.exact_product, (None, torch.randn(5, 7), torch.randn(7, 3))
    yield ops.exact_product, (torch.randn(64), torch.randn(2, 64, 64), torch.randn(2, 64, 64))
    yield ops.product_blocks, (None, torch.randn(5, 7), torch.randn(7, 3))
    yield ops.product_rules, (torch.randn(1), [])
    yield ops.product_in_blocks, (torch.randn(33), torch.randn(40, 70), torch.randn(70, 33), 32)
    yield ops.convolution, (torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 2), 2, 1, 1, 0, 1, 2)
    yield ops.convolution_backward_input, (torch.randn(2, 4, 6, 4), torch.randn(4, 3, 3, 2), 6, 5, 1, 0, 1, 1)
    yield (
        ops.convolution_backward_weight,
        (torch.randn(2, 4, 6, 4), torch.randn(2, 3, 6, 5), 3, 2, 1, 1, 1, 0, 1, 1),
    )
    yield (
        ops.crop_mirror_normalize,
        (
            torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8),
            torch.tensor([0, 1], dtype=torch.int8),
            1,
            2,
            [1.0, 2.0, 3.0],
            [0.5, 1.0, 2.0],
            torch.empty(2, 3, 4, 3),
        ),
    )
    yield ops.nms_mask, (torch.rand(5, 4), 0.5, -1)
    yield ops.roi_align, (picture, rois, 1.0, 2, 2, 2, True)
    yield ops.roi_align_backward, (torch.randn(1, 2, 2, 2), rois, [1, 2, 5, 5], 1.0, 2, True)
    yield ops.deform_columns, (picture, offset, modulation, *how)
    yield (
        ops.deform_columns_backward,
        (torch.randn(1, 2, 9, 5, 5), picture.detach(), offset.detach(), modulation.detach(), *how),
    )
    yield ops.ctc_greedy_decode, (torch.randn(5, 2, 3, dtype=d), torch.tensor([5, 3]), True)
    yield ops.unique_pairs, (torch.tensor([3, 1, 3]), torch.tensor([0, 1, 2], dtype=torch.uint8))


SAMPLES = list(samples()) if _ext.status() == "loaded" else []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: str(s[0]).split(".")[-1])
def test_torch_accepts_the_registration_of_an_operator(sample):
    op, args = sample
    torch.library.opcheck(op.default, args)


def test_every_operator_is_checked():
    names = {str(op).split(".")[-1] for op, _ in SAMPLES}
    assert names == set(registration.FAKES)
