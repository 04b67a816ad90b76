"""Helpers of the optimizer tests: small parameters, a training loop, the list of classes."""

import torch

import oneflow as flow

BOTH = ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "LBFGS"]
OURS = [
    flow.optim.SGD,
    flow.optim.Adam,
    flow.optim.AdamW,
    flow.optim.Adagrad,
    flow.optim.Adadelta,
    flow.optim.RMSprop,
    flow.optim.LAMB,
    flow.optim.Ftrl,
]


def parameters():
    torch.manual_seed(0)
    return [
        flow.nn.Parameter(flow.randn(3, 2)),
        flow.nn.Parameter(flow.randn(4)),
        flow.nn.Parameter(flow.tensor(0.5)),
    ]


def train_on_squares(o, params, steps=3):
    for _ in range(steps):
        o.zero_grad()
        sum((p * p * 0.7 + p).sum() for p in params).backward()
        o.step()
    return [p.detach().clone() for p in params]


def equal(xs, ys):
    return all(torch.equal(x, y) for x, y in zip(xs, ys))
