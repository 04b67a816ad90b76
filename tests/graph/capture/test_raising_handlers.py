"""A handler of any signal may raise in a capture: its error surfaces at the next operator, and nothing has
changed.
"""

import signal
import threading

import pytest
import torch
from graph_cases import graph_of
from torch import nn

from oneflow._graph import compilation
from oneflow._signals import held

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only"
)


class TimeIsOver(Exception):
    pass


@pytest.fixture
def handler():
    """SIGALRM raises TimeIsOver, as a time limit does."""

    def over(number, frame):
        raise TimeIsOver

    previous = signal.signal(signal.SIGALRM, over)
    yield over
    signal.signal(signal.SIGALRM, previous)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls, self.names = nn.Linear(2, 2), 0, []

    def forward(self, x):
        self.calls += 1
        self.names.append("forward")
        return self.layer(x)


def training_graph(model, optimizer, after_forward):
    def build(x):
        loss = model(x).square().sum()
        after_forward()
        loss.backward()
        return loss

    return graph_of(build, optimizer, model=model)


@pytest.mark.parametrize("error_is_caught", [False, True])
def test_the_error_of_a_handler_ends_the_capture_at_the_next_operator(handler, error_is_caught):
    reached = []

    def build(x):
        signal.raise_signal(signal.SIGALRM)
        reached.append("after the signal")
        try:
            return x + 1
        except TimeIsOver:
            if not error_is_caught:
                raise
            return x * 2

    graph = graph_of(build)
    if error_is_caught:  # a time limit of the user's own, inside build()
        assert torch.equal(graph(torch.ones(2)), torch.full((2,), 2.0))
    else:
        with pytest.raises(TimeIsOver):
            graph(torch.ones(2))
    assert reached == ["after the signal"]  # it was captured once
    assert signal.getsignal(signal.SIGALRM) is handler


def test_an_interrupted_capture_takes_attributes_and_optimizer_state_back(handler):
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters())
    signals = [signal.SIGALRM]
    graph = training_graph(model, optimizer, lambda: [signal.raise_signal(s) for s in signals])
    with pytest.raises(TimeIsOver):
        graph(torch.ones(1, 2))
    assert (model.calls, model.names, len(optimizer.state)) == (0, [], 0)
    signals.clear()
    graph(torch.ones(1, 2))
    assert (model.calls, model.names, len(optimizer.state)) == (1, ["forward"], 2)


def test_a_signal_while_the_program_is_compiled_takes_the_capture_back(handler, monkeypatch):
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters())
    graph = training_graph(model, optimizer, lambda: None)
    compiler_for = compilation.compiler_for

    def interrupted(name):
        def compile(program, config):
            signal.raise_signal(signal.SIGALRM)
            return compiler_for(name)(program, config)

        return compile

    with monkeypatch.context() as patch, pytest.raises(TimeIsOver):
        patch.setattr(compilation, "compiler_for", interrupted)
        graph(torch.ones(1, 2))
    assert (model.calls, model.names, len(optimizer.state)) == (0, [], 0)
    assert torch.isfinite(graph(torch.ones(1, 2)))


def test_held_handlers_run_at_the_end_of_the_outermost_block_in_the_order_of_their_signals(handler):
    calls = []
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    try:
        with pytest.raises(TimeIsOver), held():
            with held():
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGALRM)
                signal.raise_signal(signal.SIGUSR1)
            assert calls == []
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert calls == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGALRM) is handler
