"""Profiler regions of a call: the graph's name, phases and modules, and record_function() of build()."""

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn


class Train(nn.Graph):
    def __init__(self, backend):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9))
        self.config.set_backend(backend)

    def build(self, x):
        with flow.profiler.record_function("forward pass"):
            y = self.model(x)
        with flow.profiler.record_function("both"), flow.profiler.record_function("loss"):
            loss = y.pow(2).sum()
            loss.backward()
        return loss


def profiled(graph, x):
    """The result, and the events that are not torch operators as (name, name of the enclosing event)."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        out = graph(x)
    return out, [(e.name, e.cpu_parent and e.cpu_parent.name) for e in prof.events()]


def test_a_call_has_named_regions():
    graph, x = Train("aten"), torch.randn(4, 6)
    graph(x)
    _, events = profiled(graph, x)
    name = graph.name
    assert {
        (name, None),
        ("forward pass", name),
        ("forward: model.0", "forward pass"),
        ("forward: model.2", "forward pass"),
        ("both", name),
        ("loss", "both"),
        ("backward", "loss"),
    } <= set(events)
    assert ("aten::addmm", "forward: model.2") in events and any(n.startswith("update") for n, _ in events)


def test_regions_change_no_number_and_end_with_the_call():
    runs = []
    for watched in (False, True):
        torch.manual_seed(0)
        graph = Train("aten")
        xs = torch.randn(3, 4, 6)
        runs.append([profiled(graph, x)[0] if watched else graph(x) for x in xs])
    assert torch.equal(torch.stack(runs[0]), torch.stack(runs[1]))
    table = nn.Embedding(3, 2)
    look = nn.Graph.trace(lambda i: table(i) + 1)
    look(torch.tensor([1]))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        with pytest.raises(IndexError):
            look(torch.tensor([7]))
        torch.ones(1).exp()
    assert [e.cpu_parent for e in prof.events() if e.name == "aten::exp"] == [None]


@pytest.mark.compiler
def test_compiled_operators_form_one_region():
    graph, x = Train("inductor"), torch.randn(4, 6)
    graph(x)
    _, events = profiled(graph, x)
    assert {(graph.name, None), ("compiled", graph.name)} <= set(events)
