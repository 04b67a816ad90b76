"""A signal between any two operators of a replay: the call changes nothing, or it is complete."""

import copy
import signal
import sys
import threading

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch.optim import SGD, Adagrad, AdamW

import oneflow as flow

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only"
)


class Interruption(Exception):
    pass


@pytest.fixture(autouse=True)
def handler():
    def interrupt(number, frame):
        raise Interruption

    previous = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, previous)


def state_of(model, optimizer):
    tensors = {**model.state_dict(), "random": torch.get_rng_state()}
    for i, state in enumerate(optimizer.state.values()):
        tensors.update({f"{i}.{k}": v for k, v in state.items() if isinstance(v, torch.Tensor)})
    return {name: tensor.clone() for name, tensor in tensors.items()}


def are_equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def interrupted_after(call, graph, x):
    """Call the graph, with a signal after the given call of a C function in its program.

    Return whether the signal came before the program ended.
    """
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        if frame.f_code.co_name == "program" and event == "c_return":
            calls += 1
            if calls == call:
                signal.raise_signal(signal.SIGUSR1)

    sys.setprofile(count)
    try:
        graph(x)
    except Interruption:
        return True
    finally:
        sys.setprofile(None)
    assert calls < call, "the signal was lost"
    return False


@pytest.mark.parametrize("optimizer_class", [SGD, AdamW, Adagrad])
def test_a_signal_after_any_operator(optimizer_class):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer, x = optimizer_class(model.parameters(), lr=0.1), torch.randn(5, 3)

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, model=model)
    for _ in range(3):
        graph(x)
    verdicts, call = [], 1
    while True:
        before = state_of(model, optimizer)
        if not interrupted_after(call, graph, x):
            break
        after = state_of(model, optimizer)
        if are_equal(before, after):
            verdicts.append("nothing")
        else:
            expected_model, expected_optimizer = copied(model, optimizer, before)
            torch.set_rng_state(before["random"])
            expected_model(x).square().mean().backward()
            expected_optimizer.step()
            assert are_equal(after, state_of(expected_model, expected_optimizer)), call
            torch.set_rng_state(after["random"])
            verdicts.append("whole")
        call += 1
    assert verdicts == sorted(verdicts) and set(verdicts) == {"nothing", "whole"}


def copied(model, optimizer, state):
    """Return an eager model and optimizer with an earlier state."""
    model = copy.deepcopy(model)
    model.load_state_dict({k: state[k] for k in model.state_dict()})
    other = type(optimizer)(model.parameters(), lr=0.1)
    saved = copy.deepcopy(optimizer.state_dict())
    for i, values in saved["state"].items():
        values.update({k: state[f"{i}.{k}"] for k in values if f"{i}.{k}" in state})
    other.load_state_dict(saved)
    return model, other


def test_a_signal_waits_for_the_schedule_and_for_bound_attributes():
    torch.manual_seed(0)
    model, x = nn.Linear(3, 1), torch.randn(5, 3)
    optimizer = SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model, self.last = model, None
            self.add_optimizer(optimizer, lr_sch=schedule)
            self.config.set_backend("aten")

        def build(self, x):
            self.last = loss = self.model(x).square().mean()
            loss.backward()
            return loss

    graph = Train()
    for _ in range(3):
        graph(x)
    steps, last = schedule.last_epoch, graph.last.clone()
    assert interrupted_after(1, graph, x)
    assert schedule.last_epoch == steps + 1 and not torch.equal(graph.last, last)
