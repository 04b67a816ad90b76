"""Steps whose models are found only when they run: in objects, dicts, and among arguments of helpers."""

import types

import pytest
import torch
from step_programs import mlp
from torch import nn
from torch.nn import functional as F

import oneflow as flow


def adds_gradients(w):
    w.count = 0
    w.optimizer = torch.optim.SGD(w.model.parameters(), 0.1, momentum=0.9)

    def step(x):
        w.count += 1
        loss = w.model(x).square().mean() / 2
        loss.backward()
        if w.count % 2 == 0:
            w.optimizer.step()
            w.optimizer.zero_grad()
        return loss.item()

    return step


def trains_copies_of_the_weights(w):
    w.model.bfloat16()
    w.copies = [p.detach().float().requires_grad_() for p in w.model.parameters()]
    w.optimizer = torch.optim.AdamW(w.copies, 0.01)

    def step(x):
        loss = w.model(x.bfloat16()).float().square().mean()
        w.model.zero_grad()
        loss.backward()
        for copied, p in zip(w.copies, w.model.parameters()):
            copied.grad = p.grad.float()
        w.optimizer.step()
        with torch.no_grad():
            for copied, p in zip(w.copies, w.model.parameters()):
                p.copy_(copied)
        return loss.item()

    return step


def updates_by_hand(w):
    w.others = {"scale": nn.Parameter(torch.ones(3))}

    def step(x):
        loss = F.mse_loss(w.model(x) * w.others["scale"], x[:, :3])
        loss.backward()
        with torch.no_grad():
            for p in (*w.model.parameters(), *w.others.values()):
                p.sub_(0.1 * p.grad)
                p.grad = None
        return loss.detach()

    return step


def history(make, compile_step):
    torch.manual_seed(0)
    w = types.SimpleNamespace(model=mlp())
    step = compile_step(make(w))
    states = []
    for i in range(6):
        if i == 3:
            w.model[2] = nn.Linear(8, 3).to(w.model[0].weight.dtype)
        if i == 4:
            w.model[0].weight.grad = torch.ones_like(w.model[0].weight)
        states.append(str(step(torch.randn(5, 4))))
        states += [(p.tolist(), None if p.grad is None else p.grad.tolist()) for p in w.model.parameters()]
    return states, step


@pytest.mark.parametrize("make", [adds_gradients, trains_copies_of_the_weights, updates_by_hand])
def test_a_model_in_an_object_trains_in_a_program(make):
    expected, _ = history(make, lambda step: step)
    states, _ = history(make, lambda step: flow.compile_step(step, backend="aten", strict=True))
    assert states == expected
