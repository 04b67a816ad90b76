"""A graph follows changes of the memory that parameters, buffers and arguments share.

Bitwise equal to eager.
"""

import copy

import pytest
import torch
from graph_cases import graph_of
from stale_state_cases import Net, Pair, assert_follows, programs_after
from torch import nn

import oneflow as flow

# -- modules -------------------------------------------------------------------------------------------------


class Tied(Net):
    def __init__(self, tied=True):
        super().__init__()
        if tied:
            self.second.weight = self.first.weight


def untie(model, optimizer):
    model.second.weight = nn.Parameter(model.first.weight.detach().clone())
    optimizer.add_param_group({"params": [model.second.weight]})


def untie_untrained(model, optimizer):
    model.second.weight = nn.Parameter(torch.ones(4, 4), requires_grad=False)


def untie_first(model, optimizer):
    model.first.weight = nn.Parameter(torch.eye(4))


def tie(model, optimizer):
    model.second.weight = model.first.weight


def tie_memory(model, optimizer):
    model.second.weight.data = model.first.weight.data


def untie_memory(model, optimizer):
    model.second.weight.data = model.second.weight.data.clone()


class TiedMemory(Net):
    def __init__(self):
        super().__init__()
        self.second.weight.data = self.first.weight.data


@pytest.mark.parametrize(
    "change", [untie, untie_untrained, untie_first, untie_memory], ids=lambda f: f.__name__
)
def test_untied_weights_are_followed(change):
    assert_follows(change, make=Tied)


def freeze_first(model, optimizer):
    model.first.weight.requires_grad_(False)


def freeze_second(model, optimizer):
    model.second.weight.requires_grad_(False)


@pytest.mark.parametrize("change", [freeze_first, freeze_second], ids=lambda f: f.__name__)
def test_a_frozen_parameter_in_the_memory_of_another_is_followed(change):
    assert_follows(change, make=TiedMemory)


@pytest.mark.parametrize("change", [tie, tie_memory], ids=lambda f: f.__name__)
def test_tied_weights_are_followed(change):
    assert_follows(change)


def test_untied_memory_is_followed():
    assert_follows(untie_memory, make=TiedMemory)


# -- shared memory -------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Adds to a buffer before and after it reads the argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.arange(8.0))

    def forward(self, x):
        self.total.add_(1)
        y = x * 2
        self.total.mul_(0.5)
        return y + x


def run_counting(call_graph, backend, pick):
    module = Counting()
    run = graph_of(lambda x: module(x), module=module) if call_graph else module
    if call_graph:
        run.config.set_backend(backend)
    results = [run(pick(module, k)).clone() for k in range(5)]
    return [*results, module.total]


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize("view", [
    lambda total: total, lambda total: total[:8], lambda total: total.view(2, 4).view(8),
], ids=["buffer", "slice", "view"])  # fmt: skip
def test_argument_that_is_a_written_buffer(view, backend):
    def pick(module, step):
        return view(module.total) if step in (1, 3) else torch.full((8,), float(step))

    expected = run_counting(False, backend, pick)
    got = run_counting(True, backend, pick)
    assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_arguments_that_overlap_are_written_in_order(backend):
    def build(x, y):
        x.add_(1)
        return x * y

    memory = torch.arange(12.0)

    def pairs(memory):
        return [
            (memory[:4], memory[4:8]),
            (memory[:4], memory[:4]),
            (memory[:4], memory[2:6]),
            (memory[:4], memory[8:]),
        ]

    expected = [build(*pair).clone() for pair in pairs(memory.clone())]

    flow.set_dialect("torch")
    try:
        graph = graph_of(build)
        graph.config.set_backend(backend)
        shared = memory.clone()
        got = [graph(*pair).clone() for pair in pairs(shared)]
    finally:
        flow.set_dialect("oneflow")
    assert all(map(torch.equal, expected, got))
    assert torch.equal(shared, torch.tensor([4.0, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11]))


def test_separate_arguments_of_one_memory_share_a_program():
    module = Counting()
    graph = graph_of(lambda x, y: module(x) + y, module=module)
    for _ in range(3):
        batch = torch.randn(2, 8)
        graph(*batch)
    graph(torch.randn(8), torch.randn(8))
    assert len(graph._engine.programs) == 1


def tie_data(model, optimizer):
    model.second.weight.data = model.first.weight.data


def replace_data(model, optimizer):
    for p in model.parameters():
        p.data = p.data.clone() * 2


def transpose_data(model, optimizer):
    model.first.weight.data = model.first.weight.data.clone().t()


def freeze_and_load(model, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    model.first.weight.requires_grad_(False)
    model.first.weight.grad = None


@pytest.mark.parametrize("change", [tie_data, replace_data, transpose_data, freeze_and_load])
def test_changed_memory_is_followed(change):
    assert_follows(change, make=Pair)


def test_tied_memory_is_another_program_and_new_memory_is_not():
    assert programs_after(tie_data) == 2
    assert programs_after(replace_data) == programs_after(lambda model, optimizer: None) == 1


def transposed(model):
    model[0].weight.data = model[0].weight.data.t()


def transposed_in_place(model):
    with torch.no_grad():
        model[0].weight.t_()


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("change", [transposed, transposed_in_place])
def test_a_parameter_that_is_transposed_in_its_memory_makes_another_program(change, trained, backend):
    """Its address stays; the state of its optimizer keeps the old strides."""
    results = []
    for mode in (backend, None):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), torch.randn(3, 4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1) if trained else None

        def build(x, model=model, trained=trained):
            loss = model(x).square().mean()
            if trained:
                loss.backward()
            return loss

        step = build
        if mode is not None:
            step = graph_of(build, optimizer, model=model)
            step.config.set_backend(mode)
        losses = []
        for call in range(4):
            if call == 2:
                change(model)
            model.zero_grad()
            losses.append(step(x).detach())
            if mode is None and trained:
                optimizer.step()
        results.append([*losses, *(p.detach().clone() for p in model.parameters())])
    # inductor sums in another order
    exact = {} if backend == "inductor" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(*results, **exact)
