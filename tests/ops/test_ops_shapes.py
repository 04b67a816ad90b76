"""Every kernel at random sizes and memory layouts against values and gradients of its plain-torch reference,
in float64.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import run
from ops_table import OPS

from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")

LAYOUTS = {
    "as made": lambda x: x,
    "every second": lambda x: torch.stack((x, x), -1)[..., 0],
    "turned": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "at an odd address": lambda x: torch.empty(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape).copy_(x),
}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@given(n=st.integers(1, 70), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=12, deadline=None)
def test_random_sizes_and_layouts(op, n, seed, data):
    torch.manual_seed(seed)
    inputs = op.make(torch.float64, n if op.name != "deform_conv2d" else n % 9 + 1)
    laid = [
        LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](x)
        if isinstance(x, torch.Tensor) and x.ndim
        else x
        for x in inputs
    ]
    for actual, expected in zip(run(op.call, op, laid), run(op.plain, op, inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10, equal_nan=True)
