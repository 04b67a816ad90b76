"""Results that are parameters, arguments or views of them: they have no history, as in OneFlow 0.9, and share
memory.
"""

import torch

import oneflow as flow
import oneflow.nn as nn


class Returning(nn.Graph):
    def __init__(self, layer, returned, trains):
        super().__init__()
        self.layer, self.returned = layer, returned
        self.config.set_backend("aten")
        if trains:
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.5))

    def build(self, x):
        loss = self.layer(x).sum()
        if self.config.training:
            loss.backward()
        return {"tensors": [self.returned(self.layer, x)], "number": 3, "loss": loss}


def returned_tensor(returned, trains=False):
    layer = nn.Linear(2, 2)
    results = Returning(layer, returned, trains)(torch.ones(3, 2, requires_grad=True))
    assert results["number"] == 3
    return results["tensors"][0], layer.weight


def assert_has_no_history(tensor):
    assert type(tensor) is torch.Tensor
    assert not tensor.requires_grad and tensor.grad_fn is None


def test_returned_parameter_has_no_history_and_shares_memory():
    result, weight = returned_tensor(lambda layer, x: layer.weight)
    assert_has_no_history(result)
    assert result.data_ptr() == weight.data_ptr()


def test_returned_view_of_a_parameter_has_no_history():
    result, weight = returned_tensor(lambda layer, x: layer.weight.t()[0])
    assert_has_no_history(result)
    assert torch.equal(result, weight[:, 0])


def test_parameter_that_the_call_updates_has_its_new_value():
    result, weight = returned_tensor(lambda layer, x: layer.weight, trains=True)
    assert_has_no_history(result)
    assert torch.equal(result, weight)


def test_returned_argument_has_no_history():
    result, _ = returned_tensor(lambda layer, x: x)
    assert_has_no_history(result)
