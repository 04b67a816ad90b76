"""What the tests of _tables/tensor.py share."""

import torch

T = torch.tensor


def t(**k):
    return T([1.0, 2.0, -3.0], **k)


def leaf():
    return t(requires_grad=True)


def original(name):
    method = getattr(torch.Tensor, name)
    return getattr(method, "__oneflow_original__", method)
