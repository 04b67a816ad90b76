"""nn.Graph for inference: a graph around a trained module gives the module's results.

    python docs/examples/graph_inference.py
"""
from flowvision.models import resnet18

import oneflow as flow
import oneflow.nn as nn


class Inference(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model  # weights are shared with the module, not copied

    def build(self, x):
        return self.model(x).softmax(-1)


def main(backend="aten"):
    flow.manual_seed(0)
    model = resnet18(num_classes=10).eval()
    graph = Inference(model)
    graph.config.set_backend(backend)
    with flow.no_grad():
        first = flow.randn(2, 3, 64, 64)
        apart = (graph(first) - model(first).softmax(-1)).abs().max().item()
        print(f"largest difference from the module: {apart:.1e}")

        other = flow.randn(5, 3, 64, 64)  # a new shape: a second program, kept beside the first
        print("shapes", tuple(graph(first).shape), tuple(graph(other).shape))

        model.fc.bias.zero_()
        model.fc.weight.zero_()  # the graph sees the new weights
        print("all classes alike:", flow.allclose(graph(first), flow.full((2, 10), 0.1)))
    return apart, graph(first)


if __name__ == "__main__":
    main()
