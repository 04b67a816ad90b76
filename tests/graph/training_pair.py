"""A model and its optimizer in eager mode and in a graph, with the same training and changes."""

import copy

import torch
from torch import nn

import oneflow as flow

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def mean_square(model, optimizer, x):
    return model(x).square().mean()


class Pair:
    """One model and its optimizer in eager mode and in a graph; `step` trains both and compares the bits."""

    def __init__(self, make_optimizer, loss_of=mean_square):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
        self.models = model, copy.deepcopy(model)
        self.optimizers = tuple(map(make_optimizer, self.models))
        self.loss_of = loss_of
        self.graph = self._graph()

    def _graph(self):
        class Training(flow.nn.Graph):
            def __init__(graph):
                super().__init__()
                graph.model = self.models[1]
                graph.add_optimizer(self.optimizers[1])
                graph.config.set_backend("aten")

            def build(graph, x):
                loss = self.loss_of(graph.model, self.optimizers[1], x)
                loss.backward()
                return loss

        return Training()

    def change(self, function):
        for model, optimizer in zip(self.models, self.optimizers):
            function(model, optimizer)

    def step(self):
        model, optimizer = self.models[0], self.optimizers[0]
        optimizer.zero_grad()
        loss = self.loss_of(model, optimizer, X)
        loss.backward()
        optimizer.step()
        assert torch.equal(self.graph(X), loss)
        for expected, got in zip(*map(nn.Module.parameters, self.models)):
            assert torch.equal(expected, got)

    @property
    def program_count(self):
        return len(self.graph._engine.programs)
