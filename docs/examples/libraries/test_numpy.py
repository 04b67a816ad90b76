"""NumPy against torch: `python -m pytest test_numpy.py`."""

import numpy
import torch as reference

from oneflow_autotest import bind

api = bind(reference, numpy, names=("torch", "numpy"))
torch, autotest, random_tensor, random = api.torch, api.autotest, api.random_tensor, api.random


@autotest(n=20, auto_backward=False, check_graph=False)
def test_exp(test_case):
    return torch.exp(random_tensor(2))


@autotest(n=20, auto_backward=False, check_graph=False)
def test_matmul(test_case):
    n = random(1, 6).to(int)
    return torch.matmul(random_tensor(2, 3, n), random_tensor(2, n, 4)) + random_tensor(1, 4)
