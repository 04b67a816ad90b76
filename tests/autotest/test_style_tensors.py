"""OneFlow-style tests of tensor methods: operators, in-place, slices and their assignment, iteration,
attributes.
"""

import unittest
from collections import OrderedDict

import numpy as np
import torch as torch_original

import oneflow as flow
import oneflow.unittest
from oneflow.test_utils.automated_test_util import *
from oneflow.test_utils.automated_test_util.generators import random as deep_random
from oneflow.test_utils.automated_test_util.torch_flow_dual_object import globaltest as deep_globaltest
from oneflow.test_utils.test_util import GenArgDict, GenArgList, type_name_to_flow_type, type_name_to_np_type


def _check_add(test_case, shape, device, dtype):
    a = np.ones(shape, dtype=type_name_to_np_type[dtype])
    x = flow.tensor(a, dtype=type_name_to_flow_type[dtype], device=flow.device(device))
    test_case.assertTrue(np.array_equal((x + x).numpy(), a + a))


@flow.unittest.skip_unless_1n1d()
class TestTensors(flow.unittest.TestCase):
    def test_deep_paths_are_the_same_objects(test_case):
        test_case.assertIs(deep_random, random)
        test_case.assertIs(deep_globaltest, globaltest)

    def test_argument_grids(test_case):
        arg_dict = OrderedDict(
            shape=[(2, 3), ()], device=["cpu", "cuda"], dtype=["float32", "int8", "double"]
        )
        for arg in GenArgList(arg_dict):
            _check_add(test_case, *arg)
        for arg in GenArgDict(arg_dict):
            _check_add(test_case, **arg)

    @autotest(n=5)
    def test_operators(test_case):
        x, y = random_tensor(2, 3, 4, low=1, high=2), random_tensor(2, 3, 4, low=1, high=2)
        return (
            x + y,
            x - y,
            x * y,
            x / y,
            x**2,
            2**x,
            -x,
            +x,
            1 + x,
            3 - x,
            2 / x,
            x @ y.T,
            x.detach() // y.detach(),
            x % y,
            abs(x),
            x + 1,
            x > y,
            x != y,
            x >= 1.5,
            (x > 1.5) & (y > 1.5),
            (x > 1.5) | (y > 1.5),
        )

    @autotest(n=5)
    def test_inplace_methods(test_case):
        x = random_tensor(ndim=3) + 1
        i = id(x.oneflow)
        x.add_(2)
        x.mul_(x.detach().clone())
        x.sub_(1).div_(2)
        x.clamp_(0, 3)
        x.relu_()
        test_case.assertEqual(i, id(x.oneflow))
        return x

    @autotest(n=5)
    def test_inplace_operators(test_case):
        x = random_tensor(2, 3, 4)
        y = x * 1
        z = y
        y += 2
        y *= x
        y -= 0.5
        y /= 3
        test_case.assertIs(y.oneflow, z.oneflow)
        return y

    @autotest(n=5, auto_backward=False)
    def test_inplace_on_an_input(test_case):
        x = random_tensor(2, 3, 4, requires_grad=False)
        x.zero_()
        x.fill_(3)
        x[1:, ::2] = 7
        x.copy_(x + 1)
        x.add_(1)
        return x

    @autotest(n=5)
    def test_slices(test_case):
        x = random_tensor(ndim=4, dim0=4, dim1=5, dim2=3, dim3=2)
        i = random(0, 3).to(int).value()
        index = random_tensor(1, 2, low=0, high=4, dtype=int)
        return (
            x[0],
            x[i],
            x[:, 1:3],
            x[..., -1],
            x[None],
            x[i:, :, ::2],
            x[1, ..., 0],
            x[index],
            x[:, [0, 2]],
            x[index, index],
            x[..., None, 0],
        )

    @autotest(n=5)
    def test_slice_assignment(test_case):
        x = random_tensor(ndim=3, dim0=3, dim1=4, dim2=2) * 1
        value = random_tensor(ndim=2, dim0=4, dim1=2)
        x[0] = value
        x[1, 2:] = 5.0
        x[:, 0, 0] = value[0, 0]
        x[2][1] = 1
        return x

    @autotest(n=5)
    def test_methods(test_case):
        x = random_tensor(ndim=3, dim0=2, dim1=3, dim2=4)
        return (
            x.abs(),
            x.sum(1),
            x.mean(dim=-1),
            x.view(-1, 4),
            x.permute(2, 0, 1),
            x.transpose(0, 1),
            x.contiguous(),
            x.reshape(4, 6),
            x.expand_as(x),
            x.max(1),
            x.softmax(-1),
            x.chunk(2, dim=2),
            x.split(2, dim=2),
            x.unsqueeze(0).squeeze(0),
            x.flatten(1),
            x.float(),
            x.double(),
            x.clone(),
            x.detach(),
            x.masked_fill(x > 0.5, 0),
            x.gather(0, (x > 2).long()),
            x.index_select(1, torch.tensor([0, 2])),
            x.repeat(2, 1, 1),
            x.norm(),
            x.matmul(x.transpose(1, 2)),
            x.new_ones(2),
            x.type(torch.float64),
            x.cumsum(0),
            x.topk(2),
            x.triu(),
            x.argmax(),
            x.clamp(0.1, 0.5),
        )

    @autotest(n=3, auto_backward=False, check_graph=False)
    def test_plain_values(test_case):
        x = random_tensor(ndim=3, dim0=2, dim1=3)
        test_case.assertEqual(len(x), 2)
        test_case.assertEqual(x.dim(), 3)
        test_case.assertTrue(x.is_floating_point())
        rows = [row for row in x]
        test_case.assertEqual(len(rows), 2)
        a, b = x
        n = int(x.size(1))
        for i in range(x.shape[1]):
            n -= 1
        test_case.assertEqual(n, 0)
        test_case.assertEqual(x.shape[0].oneflow, 2)
        return x.sum().item(), x.numel(), a.tolist(), b, x.size(), x.stride()

    @autotest(n=3, auto_backward=False)
    def test_backward_by_hand(test_case):
        x = random_tensor(2, 2, 3)
        y = (x * x).sum()
        y.backward()
        return x.grad * 2

    @autotest(n=3, auto_backward=False, check_graph=False)
    def test_backward_of_one_side(test_case):
        x = random_tensor(2, 2, 3)
        y = torch.relu(x)
        y.oneflow.sum().backward()
        y.pytorch.sum().backward()
        test_case.assertTrue(np.allclose(x.oneflow.grad.numpy(), x.pytorch.grad.numpy()))

    @autotest(n=3)
    def test_a_side_changed_behind_the_record(test_case):
        x = random_tensor(2, 2, 3, requires_grad=False)
        x.oneflow[0] = 9
        x.pytorch[0] = 9
        return x * 2

    @autotest(n=3)
    def test_unpacked_attributes(test_case):
        x = random_tensor(2, 3, 4)
        k = random(1, 3).to(int)
        h = random(1, 3).to(int) + 1
        test_case.assertEqual((k * 2 + h - 1).value(), 2 * k.value() + h.value() - 1)
        return (
            x.T,
            x.data * 2,
            x.reshape(x.shape[1], x.shape[0]),
            torch.zeros(x.shape),
            x.to(x.device),
            x.to("cpu", torch.float64),
            x.requires_grad,
        )

    @globaltest
    @autotest(n=2, check_graph=False)
    def _global(test_case, placement, sbp):
        x = random_tensor(2, 4, 4).to_global(placement=placement, sbp=sbp)
        test_case.assertTrue(x.oneflow.is_global)
        m = torch.nn.Linear(4, 3).to_global(placement=placement, sbp=[flow.sbp.broadcast] * len(sbp))
        return torch.relu(x), x.sum(), m(x)

    def test_global_tensors(test_case):
        placements = all_placement()
        test_case.assertGreaterEqual(len(placements), 2)
        for placement in placements:
            for sbp in all_sbp(placement, max_dim=2, except_partial_sum=True):
                test_case._global(placement, sbp)
        test_case.assertEqual(len(all_sbp(dim=2, max_dim=2)[0]), 2)
        test_case.assertEqual(
            random_placement().value().type, "cpu"
        ) if not torch_original.cuda.is_available() else None

    @autotest(n=3)
    def test_choice_tensor(test_case):
        x = choice_tensor([1, 2, 5], size=(2, 3), dtype=int)
        return x + 1, choice_tensor(4, size=[3], p=[0, 0.5, 0.5, 0], dtype=float, requires_grad=random_bool())

    @profile(torch.nn.functional.relu)
    def profile_relu(test_case):
        return torch.nn.functional.relu(torch.ones(1, 8, 4, 4))

    def test_profile(test_case):
        import os
        from unittest import mock

        with mock.patch.dict(os.environ, ONEFLOW_PROFILE_RUN_NUM="3", ONEFLOW_PROFILE_WARMUP_NUM="1"):
            results = [r for r in test_case.profile_relu() if r is not None]
        test_case.assertEqual({r.kind for r in results}, {"OneFlow", "PyTorch"})
        test_case.assertTrue(all(r.num == 3 and "relu" in r.op_name for r in results))


if __name__ == "__main__":
    unittest.main()
