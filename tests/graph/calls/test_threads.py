"""Graphs called by several threads, as in a server's thread pool, and beside eager code in other threads."""

import threading
import warnings

import pytest
import torch
from time_limits import seconds
from torch import nn

import oneflow as flow
from oneflow.framework.scope_util import current_scope


def together(*functions):
    """Run the functions at once, each in a thread; raises what one of them raised."""
    begin, errors = threading.Barrier(len(functions), timeout=seconds(60)), []

    def run(function):
        begin.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_threads_share_an_inference_graph(backend):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval()

    class Predict(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_backend(backend)

        def build(self, x):
            return self.model(x)

    graph = Predict()

    def serve(seed):
        draws = torch.Generator().manual_seed(seed)
        for i in range(12):
            x = torch.randn(1 + (seed + i) % 2, 8, generator=draws)
            with torch.no_grad():
                torch.testing.assert_close(graph(x), model(x))

    together(*(lambda seed=seed: serve(seed) for seed in range(4)))
    assert len(graph._engine.programs) == 2


def test_captures_in_one_thread_leave_eager_training_in_another_alone():
    def trained(steps=60):
        torch.manual_seed(1)
        model = nn.Linear(8, 8)
        x, optimizer = torch.arange(32.0).view(4, 8) / 32, torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model.weight.detach().clone()

    class Step(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    models, results = [nn.Linear(8, 8) for _ in range(6)], []
    together(lambda: results.append(trained()), lambda: [Step(m)(torch.ones(2, 8)) for m in models])
    assert torch.equal(results[0], trained())


@pytest.mark.parametrize("begun", ["before", "during"])
def test_a_capture_ignores_calls_of_its_modules_in_other_threads(begun):
    """Two threads call a module of the graph before build(), or in it, and their calls end in it or later."""

    class Waiting(nn.Module):
        def forward(self, x):
            inside.wait()
            end.wait(seconds(60))
            return x

    model, waiting, outside, errors = nn.Linear(2, 2), Waiting(), current_scope(), []
    waiting.register_forward_hook(lambda *_: None)  # without it torch asks for hooks at the begin only
    inside, end, names = threading.Barrier(3, timeout=seconds(60)), threading.Event(), []

    def call():
        try:
            waiting(torch.ones(1, 2))
        except BaseException as error:
            errors.append(error)

    others = [threading.Thread(target=call) for _ in range(2)]

    def start():
        for thread in others:
            thread.start()
        inside.wait()

    def finish():
        end.set()
        for thread in others:
            thread.join()

    class Both(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model, self.waiting = model, waiting

        def build(self, x):
            start() if begun == "during" else finish()
            names.append(current_scope().name)
            return self.model(x)

    if begun == "before":
        start()
    graph, x = Both(), torch.ones(1, 2)
    assert torch.equal(graph(x), model(x))
    finish()
    assert (errors, names) == ([], [graph.name]) and current_scope() is outside


@pytest.mark.eager_calls
@pytest.mark.parametrize("as_timer", [False, True])
def test_a_thread_that_a_step_starts_gets_the_tensors_of_each_call(as_timer):
    sums = []

    def step(x):
        total = x.sum()
        note = lambda: sums.append(total.item() * 2)
        thread = threading.Timer(0.001, note) if as_timer else threading.Thread(target=note)
        thread.start()
        thread.join()
        return len(sums)

    compiled = flow.compile_step(step, backend="aten")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no program can hold this call")
        assert [compiled(torch.full((2,), i)) for i in (1.0, 2.0, 3.0)] == [1, 2, 3]
    assert sums == [4.0, 8.0, 12.0]
