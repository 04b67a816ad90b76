"""Idioms of published PyTorch programs, with `import oneflow as torch` in place of `import torch`."""

import pytest

import oneflow as torch


def test_tensor_types_as_constructors_and_as_targets_of_type():
    Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    assert torch.tensor([1, 2]).type(Tensor).dtype is torch.float32
    assert (
        torch.ones(2).type(torch.LongTensor).dtype is torch.int64
        and torch.ones(2).type("torch.DoubleTensor").dtype is torch.float64
    )
    assert torch.autograd.Variable(Tensor(2, 1).fill_(1.0), requires_grad=False).tolist() == [[1.0], [1.0]]
    with pytest.raises(ValueError, match="invalid type"):
        torch.ones(1).type("NoTensor")
