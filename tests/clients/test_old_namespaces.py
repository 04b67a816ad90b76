"""The namespace of the eager API before 0.6: programs of that time use `import oneflow.experimental as
flow`.
"""

import importlib

import pytest

import oneflow
import oneflow.experimental as flow
import oneflow.F as F
from oneflow.experimental import nn
from oneflow.experimental.optim.lr_scheduler import LambdaLR


def test_a_program_of_0_4():
    flow.enable_eager_execution()

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(flow.ones(4, dtype=flow.float32))
            self.norm, self.proj = nn.LayerNorm(4), nn.Linear(4, 2)
            nn.init.zeros_(self.proj.weight)

        def forward(self, x):
            return self.proj(flow.matmul(self.norm(x), flow.tensor([[1.0]]).expand(4, 4)) * self.scale)

    model = Gate()
    optimizer = oneflow.optim.SGD(model.parameters(), lr=1.0)
    schedule = LambdaLR(optimizer, lr_lambda=lambda step: 1.0 / (step + 1))
    model(flow.Tensor([[1.0, 2.0, 3.0, 4.0]])).sum().backward()
    optimizer.step(), schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.5 and model.proj.bias.grad.tolist() == [1.0, 1.0]


def test_modules_below_it_are_todays():
    import oneflow.experimental.nn as experimental_nn
    import oneflow.experimental.nn.functional as experimental_functional
    import oneflow.experimental.optim as experimental_optim
    import oneflow.experimental.utils.data as experimental_data

    assert (
        experimental_nn is oneflow.nn
        and experimental_functional is oneflow.nn.functional
        and experimental_data is oneflow.utils.data
    )
    assert experimental_optim is flow.optim is oneflow.compatible.single_client.experimental.optim
    assert oneflow.nn.__name__ == oneflow.nn.__spec__.name == "oneflow.nn"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("oneflow.experimental.nosuch")


def test_the_names_are_todays():
    assert flow.nn is oneflow.nn and flow.matmul is oneflow.matmul and F.relu is oneflow._C.relu
    with pytest.raises(AttributeError, match="nosuch"):
        flow.nosuch


def test_modules_of_0_8_are_at_the_old_path():
    from oneflow.nn.module import Module

    assert Module is oneflow.nn.Module
