"""A OneFlow-style test file runs: the imports, the decorators, the dual objects."""

import unittest

import torch as torch_original

import oneflow as flow
import oneflow.unittest
from oneflow.test_utils.automated_test_util import *


@flow.unittest.skip_unless_1n1d()
class TestSmoke(flow.unittest.TestCase):
    @autotest(n=3)
    def test_conv(test_case):
        device = random_device()
        x = random_tensor(ndim=4, dim0=random(1, 6), dim1=3).to(device)
        m = torch.nn.Conv2d(
            in_channels=3, out_channels=random(1, 5), kernel_size=random(1, 3), stride=random() | nothing()
        )
        m.train(random())
        m.to(device)
        y = m(x)
        test_case.assertIsInstance(y.oneflow, flow.Tensor)
        test_case.assertTrue(torch_original.equal(m.weight.pytorch, m.weight.oneflow))
        return y

    @autotest(n=3)
    def test_inplace_slices_and_tuples(test_case):
        x = random_tensor(ndim=3, dim1=4) * 2
        x[0] = 3
        x += 1
        a, b = torch.split(x, 2, dim=1)
        return a, x[..., 0], b.sum()


if __name__ == "__main__":
    unittest.main()
