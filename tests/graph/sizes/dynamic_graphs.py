"""Graphs for tests of argument sizes that vary."""

import torch

import oneflow as flow


class Training(flow.nn.Graph):
    def __init__(self, module, loss, optimizer, **config):
        super().__init__()
        self.module, self.loss = module, loss
        self.add_optimizer(optimizer)
        self.config.set_backend("aten")
        for option, value in config.items():
            getattr(self.config, option)(value)

    def build(self, *batch):
        loss = self.loss(self.module, *batch)
        loss.backward()
        return loss


class Inference(flow.nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.config.set_backend("aten")

    def build(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)
