"""Small graphs that tests save, and changes of their files."""

import torch

import oneflow as flow
import oneflow.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.body(x)


class Infer(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config.set_backend("aten")

    def build(self, x):
        return {"logits": self.model(x), "none": None, "two": 2}


class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.Adam(model.parameters(), lr=0.01))
        self.config.set_backend("aten")

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def data():
    torch.manual_seed(1)
    return torch.randn(6, 4), torch.randint(0, 2, (6,))
