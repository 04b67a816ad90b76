"""Peak memory of a step, counted from allocator events: a graph needs no more than eager, and recomputation
needs less.
"""

import copy
import os
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import oneflow as flow


def peak(step):
    """Highest sum of live bytes the allocator handed out during one call, above the start."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step()
    live = most = 0
    for event in sorted(
        (e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"),
        key=lambda e: e.start_ns(),
    ):
        live += event.nbytes()
        most = max(most, live)
    assert most > 0, "the profiler gave no memory events"
    return most


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.norm = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.LayerNorm(width),
        )

    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.a(self.norm(x))))


def eager_step(model, optimizer, x):
    def step():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


def graph_of(model, optimizer, x, recompute=False):
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(optimizer)
            self.config.set_backend("aten")
            if recompute:
                for k in range(len(model)):
                    self.m[k].config.activation_checkpointing = True

        def build(self, x):
            loss = self.m(x).pow(2).mean()
            loss.backward()
            return loss

    graph = G()
    return lambda: graph(x)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


@pytest.mark.parametrize("rows", [8, 2048])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_more_than_eager(name, rows):
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(64) for _ in range(6)])
    other = copy.deepcopy(model)
    x = torch.randn(rows, 64)
    eager, graph = (
        eager_step(model, OPTIMIZERS[name](model.parameters()), x),
        graph_of(other, OPTIMIZERS[name](other.parameters()), x),
    )
    for step in (eager, graph):
        step(), step()
    # eager starts with the gradients of the step before still alive, and frees them in zero_grad
    gradients = sum(p.numel() * p.element_size() for p in model.parameters())
    assert peak(graph) <= peak(eager) + gradients


def test_recomputation_needs_less():
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(32) for _ in range(8)])
    x = torch.randn(2048, 32)
    peaks = []
    for recompute in (False, True):
        twin = copy.deepcopy(model)
        step = graph_of(twin, OPTIMIZERS["sgd"](twin.parameters()), x, recompute)
        step()
        peaks.append(peak(step))
    assert peaks[1] < 0.5 * peaks[0]


STEADY = """
import resource, torch, oneflow as flow
class G(flow.nn.Graph):
    def build(self, x):
        return (x * 2 + 1).sum(), (x.sin() - x.cos()).sum()
graph, x = G(), torch.ones(3000, 3000)
graph.config.set_backend("aten")
for _ in range(10):
    graph(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    graph(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5)
"""


def faults_per_call(**environment):
    done = subprocess.run(
        [sys.executable, "-c", STEADY],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_large_program_keeps_the_memory_it_frees():
    kept, given_back = faults_per_call(), faults_per_call(ONEFLOW_GRAPH_KEEP_MEMORY="0")
    # 36 MB results, more than glibc ever keeps by itself: 8,800 pages each; the process faults a little
    # anyway
    assert 4 * kept < given_back and given_back > 1000


@pytest.mark.parametrize("size, asked", [(2000, True), (20, False)])
def test_only_a_large_program_changes_the_allocator(monkeypatch, size, asked):
    from oneflow._graph.compile import memory

    calls = []
    monkeypatch.setattr(memory, "_done", [])
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(
        memory.ctypes,
        "CDLL",
        lambda name: type("C", (), {"mallopt": staticmethod(lambda *a: calls.append(a) or 1)}),
    )
    for name in [k for k in os.environ if "MALLOC" in k or k == "GLIBC_TUNABLES"]:
        monkeypatch.delenv(name)
    graph = type("G", (flow.nn.Graph,), {"build": lambda self, x: x + 1})()
    graph.config.set_backend("aten")
    graph(torch.ones(size, size))
    assert bool(calls) is asked
