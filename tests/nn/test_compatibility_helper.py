"""oneflow.test_utils.oneflow_pytorch_compatibility: one model file under both libraries."""

import unittest

import pytest

from oneflow.test_utils.oneflow_pytorch_compatibility import cos_sim, do_test_train_loss_oneflow_pytorch

MODEL = """
import torch
import torch.nn as nn
from torch import Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        SEEN.append(torch.__name__)
        return self.head(torch.flatten(self.body(x), 1))SCALE


SEEN = []
"""  # noqa: E501


def test_a_model_file_trains_alike_under_both(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL.replace("SCALE", ""))
    do_test_train_loss_oneflow_pytorch(unittest.TestCase(), str(path), "Net", "cpu", 4, 16, steps=4)


def test_a_difference_is_found(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL.replace("SCALE", " * (2 if torch.__name__ == 'oneflow' else 1)"))
    with pytest.raises(AssertionError, match="first loss: oneflow"):
        do_test_train_loss_oneflow_pytorch(unittest.TestCase(), str(path), "Net", "cpu", 4, 16, steps=2)
    assert cos_sim([1.0, 0.0], [0.0, 1.0]) == 0.5
