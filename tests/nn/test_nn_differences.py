"""Rows of _tables/differences_nn.py where torch's meaning is kept."""
import pytest
import torch

import numpy as np
import oneflow as flow
from oneflow.nn import functional as F


def test_trunc_normal_does_not_clamp():
    flow.manual_seed(0)
    x = flow.nn.init.trunc_normal_(flow.empty(20000), std=1.0)
    assert (x.abs() < 2).all() and abs(x.std().item() - 0.88) < 0.02  # OneFlow's: 4.5 % at the bounds, deviation 0.96


def test_orthogonal_works_in_place():
    w = flow.empty(3, 5)
    assert flow.nn.init.orthogonal_(w) is w
    torch.testing.assert_close(w @ w.T, torch.eye(3))


def test_batch_norm_refuses_one_value_per_channel():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        flow.nn.BatchNorm1d(3)(flow.ones(1, 3))


@pytest.mark.parametrize("name", ["ELU", "ReLU6", "Hardswish", "Hardtanh", "SELU", "SiLU", "Mish"])
def test_inplace_is_honoured(name):
    module, x = getattr(flow.nn, name)(inplace=True), flow.tensor([-1.5, 2.5])
    assert module(x) is x and x[0] != -1.5
    with pytest.raises(RuntimeError, match="leaf"):
        module(flow.ones(2, requires_grad=True))


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


@pytest.mark.parametrize("loss", [F.kl_div, lambda x, t, log, reduction: flow.nn.KLDivLoss(reduction, log)(x, t), flow._C.kl_div_loss])
def test_kl_div_of_negative_targets(loss):
    x = flow.tensor([-0.5, 0.25, 1.0], requires_grad=True)
    target = flow.tensor([0.5, -2.0, 0.0])
    got = loss(x, target, False, "none")
    assert got.tolist() == [pytest.approx(0.5 * (0.5 - float(np.log(2)))), 0.0, 0.0]
    got.sum().backward()
    assert x.grad.tolist() == [-0.5, 0.0, 0.0]
    assert loss(x, target, True, "none").tolist() == torch.nn.functional.kl_div(x, target, reduction="none", log_target=True).tolist()
