"""Loading state dicts of graphs with another optimizer or without one, and invalid state dicts."""

import copy

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn

X = torch.linspace(-1, 1, 12).reshape(4, 3)


class Extra(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.note = nn.Linear(3, 2), "as made"

    def forward(self, x):
        return self.fc(x)

    def get_extra_state(self):
        return {"note": self.note}

    def set_extra_state(self, state):
        self.note = state["note"]


class Step(nn.Graph):
    def __init__(self, optimizer=None, schedule=None):
        super().__init__()
        self.model = Extra()
        if optimizer is not None:
            self.optimizer = optimizer(self.model.to(nn.Module).parameters())
            self.add_optimizer(self.optimizer, lr_sch=schedule and schedule(self.optimizer))
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).pow(2).sum()
        if self.training:
            loss.backward()
        return loss


def sgd(parameters, momentum=0.9):
    return flow.optim.SGD(parameters, lr=0.1, momentum=momentum)


def adamw(parameters, **options):
    return flow.optim.AdamW(parameters, lr=0.01, **options)


def trained(*args):
    graph = Step(*args)
    for _ in range(2):
        graph(X)
    graph.model.to(nn.Module).note = "trained"
    return graph


@pytest.mark.parametrize("ours", [False, True], ids=["OneFlow's", "ours"])
@pytest.mark.parametrize(
    "one,other,kept",
    [(sgd, adamw, "exp_avg"), (adamw, sgd, "momentum_buffer")],
    ids=["sgd to adamw", "adamw to sgd"],
)
def test_another_optimizer_begins_anew(one, other, kept, ours):
    state = trained(one).state_dict()
    if not ours:
        state = {k: v for k, v in state.items() if not k.endswith("-step") and not k.startswith("optimizer_")}
    graph, like = Step(other), Step(other)
    with pytest.warns(UserWarning, match=f"optimizer 0.*{type(graph.optimizer).__name__}.*{kept}.*anew"):
        graph.load_state_dict(state)
    like.model.to(nn.Module).load_state_dict(state["model"])
    assert (
        not graph.optimizer.state
        and graph.optimizer.param_groups[0]["lr"] == like.optimizer.param_groups[0]["lr"]
    )
    assert [graph(X).item() for _ in range(3)] == [like(X).item() for _ in range(3)]


def test_one_optimizer_with_other_options_goes_on():
    for one, other in (
        (lambda p: sgd(p, 0), sgd),
        (sgd, lambda p: sgd(p, 0)),
        (adamw, lambda p: adamw(p, amsgrad=True)),
        (adamw, flow.optim.Adam),
    ):
        source = trained(one)
        graph = Step(other)
        graph.load_state_dict(source.state_dict())
        if other is not flow.optim.Adam:
            assert [graph(X).item() for _ in range(3)] == [source(X).item() for _ in range(3)]
        else:
            moments = zip(graph.optimizer.state.values(), source.optimizer.state.values())
            assert all(torch.equal(a["exp_avg"], b["exp_avg"]) for a, b in moments)


def test_a_graph_without_optimizer_takes_the_state_of_training():
    source = trained(sgd)
    graph = Step()
    with pytest.warns(UserWarning, match="model.fc.weight-momentum"):
        graph.load_state_dict(source.state_dict())
    assert graph.model.to(nn.Module).note == "trained"
    assert graph(X).item() == source.model.to(nn.Module)(X).pow(2).sum().item()


def test_another_number_of_groups_keeps_its_options():
    def two(parameters):
        weight, bias = parameters
        return flow.optim.SGD([{"params": [weight]}, {"params": [bias], "lr": 0.3}], lr=0.2, momentum=0.9)

    graph = Step(sgd)
    with pytest.warns(UserWarning, match="2 parameter groups, optimizer 0 has 1"):
        graph.load_state_dict(trained(two).state_dict())
    assert graph.optimizer.param_groups[0]["lr"] == 0.1 and len(graph.optimizer.state) == 2
    graph(X)


@pytest.mark.parametrize(
    "key,value", [("model", 3), ("optimizer_0", 5), ("lr_scheduler_0", None), ("model", {"fc.weight": "x"})]
)
def test_what_is_no_state_changes_nothing(key, value):
    schedule = lambda o: flow.optim.lr_scheduler.StepLR(o, 2)
    state = dict(trained(sgd, schedule).state_dict())
    state[key] = {**state["model"], **value} if isinstance(value, dict) else value
    graph = Step(sgd, schedule)
    before = copy.deepcopy(graph.model.to(nn.Module).state_dict())
    with pytest.raises((TypeError, RuntimeError), match=key if not isinstance(value, dict) else "fc.weight"):
        graph.load_state_dict(state)
    now = graph.model.to(nn.Module).state_dict()
    assert (
        torch.equal(now["fc.weight"], before["fc.weight"])
        and now["_extra_state"] == before["_extra_state"]
        and not graph.optimizer.state
    )


def test_load_state_dict_with_other_options_recaptures():
    def losses(graph_of_training):
        torch.manual_seed(0)
        model, x = nn.Linear(4, 4), torch.randn(2, 4)
        optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
        step = graph_of_training(model, optimizer)
        for _ in range(3):
            step(x)
        state = copy.deepcopy(optimizer.state_dict())
        state["param_groups"][0]["betas"] = (0.5, 0.6)
        optimizer.load_state_dict(state)
        return [step(x).item() for _ in range(3)]

    def captured(model, optimizer):
        class Training(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x):
                loss = self.model(x).square().sum()
                loss.backward()
                return loss

        graph = Training()
        graph.config.set_backend("aten")
        return graph

    def eager(model, optimizer):
        def step(x):
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    assert losses(captured) == losses(eager)
