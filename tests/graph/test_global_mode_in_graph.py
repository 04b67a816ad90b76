"""Layers with global tensors in graphs whose build() runs inside global_mode. The expected values come from
OneFlow 0.9.0.
"""

import pytest

import oneflow as flow
import oneflow.nn as nn
from oneflow.utils.global_view import global_mode

CPU, WHOLE = flow.placement("cpu", [0]), flow.sbp.broadcast
LAYERS = {
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 8)),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 8, 8)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 8, 8)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 8, 8)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 3, 8, 8)),
    "Linear": (lambda: nn.Linear(8, 4), (2, 8)),
    "Embedding": (lambda: nn.Embedding(8, 4), None),
    "LSTM": (lambda: nn.LSTM(8, 4), (3, 2, 8)),
}
MODES = {"off": lambda: global_mode(False), "on": lambda: global_mode(True, CPU, WHOLE)}


def run_in_global_mode(graph, x):
    out = graph(x)
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layer", LAYERS)
def test_layer_of_global_tensors_gives_eager_values(layer, mode):
    make, shape = LAYERS[layer]
    module = make().to_global(CPU, WHOLE)
    x = (flow.randn(*shape) if shape else flow.tensor([1, 5, 2])).to_global(CPU, WHOLE)

    class Layer(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = module

        def build(self, x):
            with MODES[mode]():
                return self.layer(x)

    out = run_in_global_mode(Layer(), x)
    assert out.is_global and flow.equal(out.to_local(), run_in_global_mode(module, x).to_local())


def test_training_step_in_a_graph_called_inside_global_mode():
    module = nn.Conv2d(3, 4, 3).to_global(CPU, WHOLE)
    before = module.weight.to_local().clone()

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = module
            self.add_optimizer(flow.optim.SGD(module.parameters(), lr=0.5))

        def build(self, x):
            with global_mode(False):
                loss = self.layer(x).sum()
                loss.backward()
                return loss

    with global_mode(True, CPU, WHOLE):
        Step()(flow.ones(1, 3, 8, 8))
    assert flow.allclose(module.weight.to_local(), before - 0.5 * 36)
