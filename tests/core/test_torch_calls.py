"""Regression tests: calls from torch's operator samples (torch.testing._internal) that once gave another
result.
"""

import pytest
import torch

import oneflow as flow
from oneflow.nn import functional as F

X = torch.randn(2, 3, 4, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "name, x, args",
    [
        ("gelu", X, ()),
        ("hardshrink", X, (0.3,)),
        ("softshrink", X, (0.3,)),
        ("avg_pool2d", X[0], (2,)),
        ("avg_pool3d", X, (2,)),
    ],
)
def test_functions_with_out(name, x, args):
    want = getattr(torch.nn.functional, name)(x, *args)
    out = torch.zeros_like(want)
    assert getattr(F, name)(x, *args, out=out) is out and torch.equal(out, want)


@pytest.mark.parametrize("complex_result", [False, True])
def test_stft_of_complex_numbers(complex_result):
    x = torch.randn(40, dtype=torch.complex64)
    assert torch.equal(
        flow.stft(x, 8, return_complex=complex_result), torch.stft(x, 8, return_complex=complex_result)
    )
    assert (
        flow.stft(x, 8).is_complex()
        and flow.stft(x.real, 8, window=torch.ones(8) * 1j).is_complex()
        and not flow.stft(x.real, 8).is_complex()
    )


def test_logaddexp_of_a_number():
    with pytest.raises(TypeError):
        flow.logaddexp(torch.arange(3), 1)


def test_kl_div_of_negative_targets_follows_the_dialect():
    logs, target = torch.zeros(2), torch.tensor([-1.0, 1.0])
    assert flow.nn.KLDivLoss(reduction="sum")(logs, target) == 0
    flow.set_dialect("torch")
    try:
        assert flow.nn.KLDivLoss(reduction="sum")(logs, target).isnan()
    finally:
        flow.set_dialect("oneflow")
