"""A training step that is changed between calls, in eager mode and in a graph."""

import torch
from graph_cases import graph_of
from torch import nn

STEPS = 6


class Net(nn.Module):
    """Two layers and a norm; `body` is what forward computes."""

    def __init__(self, body=None):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.body = body

    def forward(self, x):
        y = self.second(torch.relu(self.norm(self.first(x))))
        return y if self.body is None else self.body(self, y)


def train(model, make_optimizer, change, as_graph, schedule=None):
    """Losses, state and generator of six steps; `change(model, optimizer)` runs before the third."""
    optimizer = make_optimizer(model)
    scheduler = schedule(optimizer) if schedule else None
    model.optimizer_of_build = [optimizer]

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, optimizer, model=model) if as_graph else build
    torch.manual_seed(0)
    batches = [torch.randn(6, 4) for _ in range(STEPS)]
    losses = []
    for k, x in enumerate(batches):
        if k == 2:
            change(model, optimizer)
        optimizer.zero_grad()
        losses.append(step(x).item())
        if not as_graph:
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
    names = {p: name for name, p in model.named_parameters()}
    optimizer_state = {names[p]: state for p, state in optimizer.state.items() if p in names and state}
    return losses, model.state_dict(), optimizer_state, torch.get_rng_state()


def assert_follows(change, make=Net, make_optimizer=None, schedule=None):
    make_optimizer = make_optimizer or (lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9))
    expected = train(seeded(make), make_optimizer, change, False, schedule)
    got = train(seeded(make), make_optimizer, change, True, schedule)
    assert expected[0] == got[0]
    assert_equal_state(expected[1], got[1])
    assert_equal_state(expected[2], got[2])
    assert torch.equal(expected[3], got[3])


def seeded(make):
    torch.manual_seed(1)
    return make()


def assert_equal_state(expected, got):
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, torch.Tensor) and torch.equal(expected, got)
    elif isinstance(expected, dict):
        assert expected.keys() == got.keys()
        for key in expected:
            assert_equal_state(expected[key], got[key])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(got)
        for pair in zip(expected, got):
            assert_equal_state(*pair)
    else:
        assert expected == got


def option(name, value):
    def change(model, optimizer):
        optimizer.param_groups[-1][name] = value

    change.__name__ = f"{name}={value}"
    return change


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def programs_after(change):
    torch.manual_seed(0)
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = graph_of(build, optimizer, model=model)
    for k in range(4):
        if k == 2:
            change(model, optimizer)
        step(torch.ones(2, 4))
    return len(step._engine.programs)
