"""A saved training graph keeps its learning rate schedule."""

import json

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn
from oneflow._graph.saved.package import PackageError

L = flow.optim.lr_scheduler
X = torch.linspace(-1, 1, 24).reshape(4, 6)


class Train(nn.Graph):
    def __init__(self, schedule, groups=2):
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        first, last = self.model[0].to(nn.Module), self.model[2].to(nn.Module)
        groups = [{"params": first.parameters(), "lr": 0.3}, {"params": last.parameters()}]
        optimizer = flow.optim.SGD(groups, lr=0.1, momentum=0.9)
        self.add_optimizer(optimizer, lr_sch=schedule(optimizer))
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        return loss


def losses(graph, steps):
    return [graph(X).item() for _ in range(steps)]


def saved(schedule, path, steps=3):
    graph = Train(schedule)
    losses(graph, steps)
    graph.save(path)
    return graph


SCHEDULES = {
    "StepLR": lambda o: L.StepLR(o, step_size=2, gamma=0.5),
    "MultiStepLR": lambda o: L.MultiStepLR(o, [6, 4], gamma=0.5),
    "ExponentialLR": lambda o: L.ExponentialLR(o, 0.7),
    "ConstantLR": lambda o: L.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: L.LinearLR(o, 0.1, 1.0, 6),
    "CosineAnnealingLR": lambda o: L.CosineAnnealingLR(o, 5),
    "CosineDecayLR": lambda o: L.CosineDecayLR(o, decay_steps=9, alpha=0.1),
    "PolynomialLR": lambda o: L.PolynomialLR(o, 4, cycle=True),
    "CosineAnnealingWarmRestarts": lambda o: L.CosineAnnealingWarmRestarts(o, 2, 2),
    "WarmUpLR": lambda o: L.WarmUpLR(L.CosineDecayLR(o, decay_steps=9), warmup_iters=5),
    "SequentialLR": lambda o: L.SequentialLR(
        o, [L.ConstantLR(o, 0.5), L.ExponentialLR(o, 0.7)], [5], interval_rescaling=True
    ),
    "ChainedScheduler": lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.5), L.ExponentialLR(o, 0.7)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_loaded_graph_goes_on_with_the_schedule(name, tmp_path):
    graph = saved(SCHEDULES[name], tmp_path / "a")
    loaded = flow.load_graph(tmp_path / "a")
    assert losses(loaded, 3) == losses(graph, 3)
    loaded.save(tmp_path / "b")
    want = losses(graph, 4)
    assert losses(flow.load_graph(tmp_path / "b"), 4) == want
    state = loaded.state_dict()
    again = flow.load_graph(tmp_path / "a")
    again.load_state_dict(state)
    assert losses(again, 4) == want
    losses(loaded, 4)
    assert sorted(loaded.lr.values()) == sorted(g["lr"] for g in graph._opts[0][0].param_groups)


def test_set_lr_ends_the_schedule(tmp_path):
    saved(SCHEDULES["CosineDecayLR"], tmp_path / "a")
    loaded = flow.load_graph(tmp_path / "a")
    loaded.set_lr(0.25)
    losses(loaded, 2)
    assert set(loaded.lr.values()) == {0.25}


@pytest.mark.parametrize(
    "schedule",
    [lambda o: L.LambdaLR(o, lambda step: 0.5**step), lambda o: torch.optim.lr_scheduler.StepLR(o, 2)],
)
def test_a_schedule_that_cannot_be_stored_is_told(schedule, tmp_path):
    graph = Train(schedule)
    losses(graph, 3)
    with pytest.warns(UserWarning, match="LR.*set_lr"):
        graph.save(tmp_path / "a")
    rates = flow.load_graph(tmp_path / "a").lr
    assert sorted(rates.values()) == sorted(g["lr"] for g in graph._opts[0][0].param_groups)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(kind="LambdaLR"),
        lambda s: s.update(kind="__init__"),
        lambda s: s.update(numbers={"get_lr": 1}),
        lambda s: s.update(rates=["model.0.weight", None]),
        lambda s: s.update(base=[0.1]),
        lambda s: s.pop("step"),
        lambda s: s.update(step="x"),
        lambda s: s.update(numbers={"gamma": "x", "step_size": 2}),
    ],
)
def test_an_altered_schedule_is_refused(change, tmp_path):
    saved(SCHEDULES["StepLR"], tmp_path / "a")
    path = tmp_path / "a" / "program.json"
    document = json.loads(path.read_text())
    change(document["schedules"][0])
    path.write_text(json.dumps(document))
    with pytest.raises(PackageError, match="program.json"):
        flow.load_graph(tmp_path / "a")
