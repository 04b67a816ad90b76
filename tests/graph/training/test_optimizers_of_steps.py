"""Optimizers of compiled steps: state of every form, and another optimizer in the place of the first one."""

import copy
import types

import pytest
import test_client_optimizers as client
import torch
from test_compiled_steps import differences
from torch import nn

import oneflow as flow


class AsksForKeys(client.Plain):
    def update(self, group, p, state):
        if "average" not in state:
            state["average"] = torch.zeros_like(p)
        state["average"].lerp_(p.grad, 0.1)
        p.sub_(state["average"], alpha=group["lr"])


class AsksForLength(client.Plain):
    def update(self, group, p, state):
        if len(state) == 0:
            state["average"] = torch.zeros_like(p)
        state["average"].lerp_(p.grad, 0.1)
        p.sub_(state["average"], alpha=group["lr"])


class AsksForDefaults(client.Plain):
    def update(self, group, p, state):
        average = state.setdefault("average", torch.zeros_like(p))
        average.lerp_(p.grad, 0.1)
        p.sub_(average, alpha=group["lr"])


class CatchesErrors(client.Plain):
    def update(self, group, p, state):
        try:
            average = state["average"]
        except KeyError:
            average = state["average"] = torch.zeros_like(p)
        average.lerp_(p.grad, 0.1)
        p.sub_(average, alpha=group["lr"])


class KeepsByName(client.Plain):
    """State beside the state of the parameters."""

    def update(self, group, p, state):
        averages = self.state.setdefault("averages", {})
        averages[p] = averages.get(p, 0) * 0.9 + p.grad
        p.sub_(averages[p], alpha=group["lr"])


KINDS = [
    AsksForKeys,
    AsksForLength,
    AsksForDefaults,
    CatchesErrors,
    KeepsByName,
    client.AnotherFirstStep,
    client.TensorInGroup,
    client.Aggregated,
    client.Replaces,
    client.NumbersOfLists,
    client.DeepCopied,
    client.Queue,
    client.Outside,
    client.Flag,
    client.Attribute,
    client.Nested,
]


def trained(make_optimizer, is_compiled, change=None, place=vars):
    """What five calls of a step leave. `change(model, optimizer)` makes another optimizer after two calls.

    `place(holder)` is the dict in which the step finds its optimizer.
    """
    torch.manual_seed(0)
    model, holder = nn.Linear(4, 3), types.SimpleNamespace()
    holder.optimizer = make_optimizer(model.parameters())
    holder.inner = types.SimpleNamespace(optimizer=holder.optimizer)
    holder.by_name = {"optimizer": holder.optimizer}

    def step(x):
        optimizer = place(holder)["optimizer"]
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = flow.compile_step(step, backend="aten") if is_compiled else step
    left = []
    for i in range(5):
        if i == 2 and change is not None:
            place(holder)["optimizer"] = change(model, place(holder)["optimizer"])
        loss = run(torch.full((2, 4), 0.1 * i + 0.1))
        optimizer = place(holder)["optimizer"]
        state = [optimizer.state.get(p, {}) for p in model.parameters()]
        left.append(copy.deepcopy([loss, *model.parameters(), state]))
    return left


@pytest.mark.eager_calls
@pytest.mark.filterwarnings("ignore:.*no program can hold")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_state_of_an_own_optimizer_is_what_eager_mode_leaves(kind):
    assert list(differences(trained(kind, False), trained(kind, True))) == []


@pytest.mark.parametrize("kind", KINDS[:4], ids=lambda kind: kind.__name__)
def test_state_that_step_creates_is_in_a_program_from_the_first_call_on(kind):
    trained(kind, True)  # without calls in eager mode


CHANGES = {
    "the same options": lambda model, old: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "other options": lambda model, old: torch.optim.SGD(model.parameters(), lr=0.03),
    "fewer parameters": lambda model, old: torch.optim.SGD([model.bias], lr=0.1, momentum=0.9),
    "another class": lambda model, old: torch.optim.Adam(model.parameters(), lr=0.03),
    "a copy": lambda model, old: copy.copy(old),
}
PLACES = {
    "an attribute": vars,
    "an attribute of an attribute": lambda holder: vars(holder.inner),
    "an entry": lambda holder: holder.by_name,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES)
def test_another_optimizer_in_the_place_of_the_first_one_is_stepped(change, place):
    def momentum(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    of_eager_mode = trained(momentum, False, CHANGES[change], PLACES[place])
    assert list(differences(of_eager_mode, trained(momentum, True, CHANGES[change], PLACES[place]))) == []


@pytest.mark.parametrize("gamma", [0.5, 0.9], ids=["other options", "the same options"])
def test_another_schedule_in_the_place_of_the_first_one_is_stepped(gamma):
    def rates(is_compiled):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        holder = types.SimpleNamespace(schedule=torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9))

        def step(x):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            holder.schedule.step()

        run, left = flow.compile_step(step, backend="aten") if is_compiled else step, []
        for i in range(6):
            if i in (2, 4):
                holder.schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma)
            run(torch.ones(2, 4))
            left.append((optimizer.param_groups[0]["lr"], holder.schedule.last_epoch))
        return left

    assert rates(is_compiled=True) == rates(is_compiled=False)


class Counts(client.Plain):
    def update(self, group, p, state):
        state["count"] = state.get("count", 0) + 1
        p.sub_(p.grad, alpha=group["lr"] / state["count"])


@pytest.mark.eager_calls
def test_numbers_in_the_state_of_an_optimizer_that_steps_behind_the_program_stay():
    def counts(is_compiled):
        torch.manual_seed(0)
        model, losses, left = nn.Linear(4, 3), [], []
        optimizer = Counts(model.parameters())

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            losses.append(f"{float(loss.detach()):.3f}")  # from here on in Python
            optimizer.step()

        run = flow.compile_step(step, backend="aten") if is_compiled else step
        for _ in range(5):
            run(torch.ones(2, 4))
            left.append([optimizer.state[p]["count"] for p in model.parameters()])
        return left, losses

    assert counts(is_compiled=True) == counts(is_compiled=False)


@pytest.mark.eager_calls
def test_another_parameter_in_the_place_of_the_first_one_gets_its_gradient():
    """The gradients of the others are zeroed and added to in place; the new parameter has none."""

    def gradients(is_compiled):
        torch.manual_seed(0)
        model, texts, left = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), [], []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
            loss = model(x).square().mean()
            loss.backward()
            texts.append(f"{float(loss.detach()):.3f}")  # from here on in Python
            optimizer.step()

        run = flow.compile_step(step, backend="aten") if is_compiled else step
        for i in range(5):
            if i in (2, 4):
                model[1].bias = nn.Parameter(torch.ones(3))
            run(torch.ones(2, 4))
            left.append([parameter.grad.clone() for parameter in model.parameters()])
        return left

    assert list(differences(gradients(is_compiled=False), gradients(is_compiled=True))) == []
