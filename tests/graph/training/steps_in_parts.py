"""Steps that are compared with eager mode: results, what they print and keep, arguments, weights, optimizer
state and random state, bit for bit.
"""

import functools
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

CALLS = 10


class World:
    """A model in training, and what a step keeps."""

    def __init__(self):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.kept = {}

    def loss(self, x, y):
        return F.cross_entropy(self.model(x), y)

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def __repr__(self):
        state = [*self.model.state_dict().values(), torch.get_rng_state()]
        generators = random.getstate(), np.random.get_state()[1].tolist()
        moments = [v for s in self.optimizer.state.values() for v in s.values()]
        return repr([t.tolist() for t in (*state, *moments)] + [shown(self.kept), generators])


def shown(value):
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.tolist()
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [shown(each) for each in value]
    return value


def trains(make, compile_step, capsys, calls=CALLS):
    world = World()
    step = make(world)
    compiled = compile_step(step)
    run = compiled
    if hasattr(step, "wrapped"):
        step.wrapped.step, run = compiled, step.wrapped
    generator = torch.Generator().manual_seed(1)
    seen = []
    for _ in range(calls):
        x = torch.randn(16, 8, generator=generator)
        y = torch.randint(0, 3, (16,), generator=generator)
        seen += [repr(shown(run(x, y))), repr(x.tolist()), capsys.readouterr().out]
    return [*seen, repr(world)], compiled


def assert_follows_eager(make, capsys, **options):
    expected, _ = trains(make, lambda step: step, capsys)
    found, compiled = trains(
        make, functools.partial(flow.compile_step, **{"backend": "aten"} | options), capsys
    )
    for position, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a == b, position
    return compiled.graph
