"""A call whose run fails changes nothing: state is as it was, whatever the program has written before."""

import gc

import pytest
import torch
from torch import nn

import oneflow as flow

BACKENDS = ["aten", "inductor", "auto"]


class Net(nn.Module):
    """Write every form of state before an operator that refuses an index."""

    def __init__(self):
        super().__init__()
        self.embedding, self.dropout, self.norm = nn.Embedding(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3)
        self.register_buffer("queue", torch.zeros(8, 3))
        self.register_buffer("cache", torch.zeros(4, 1 << 18))  # large: only its parts are copied
        self.register_buffer("table", torch.zeros(1 << 18, 2))
        self.calls, self.texts, self.last, self.options = 0, [], None, {"steps": 0}

    def forward(self, index, bad):
        self.calls += 1
        self.options["steps"] += 1
        self.texts.append("call")
        x = self.dropout(self.norm(self.embedding(index)))
        with torch.no_grad():
            self.queue[2:6] = x.detach()
            self.cache[1].add_(1)
            self.table.index_add_(0, index * 3, torch.ones(4, 2))
            self.table[index + 9] = 2.0
        self.last = x.sum() * 1
        return (x + flow.rand(x.shape)).index_select(0, bad)


class Train(flow.nn.Graph):
    def __init__(self, model, optimizer, schedule, backend):
        super().__init__()
        self.model, self.steps = model, 0
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.set_backend(backend)

    def build(self, index, bad, written):
        self.steps += 1
        written.add_(1)
        loss = self.model(index, bad).square().sum()
        loss.backward()
        return loss


def facts(model, graph, optimizer, written):
    """Everything that a call may change, as values that compare."""
    tensors = {**model.state_dict(), "written": written, "random": torch.get_rng_state()}
    for i, state in enumerate(optimizer.state.values()):
        tensors.update({f"{i}.{key}": value for key, value in state.items()})
    return {
        **{name: value.detach().flatten()[:64].tolist() for name, value in tensors.items()},
        **{f"{name}.sum": value.double().sum().item() for name, value in tensors.items()},
        "random": torch.get_rng_state().tolist(),
        "python": (model.calls, list(model.texts), dict(model.options), graph.steps),
        "last": None if model.last is None else model.last.item(),
        "rate": optimizer.param_groups[0]["lr"],
        "gradient": model.embedding.weight.grad is None,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_run_changes_nothing(backend):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    graph = Train(model, optimizer, schedule, backend)
    index, good, bad = torch.arange(4), torch.tensor([0, 1]), torch.tensor([0, 99])
    written = torch.zeros(3)
    for successes in (0, 1, 1):  # no state yet, new state, a replay
        for _ in range(successes):
            graph(index, good, written)
        before = facts(model, graph, optimizer, written)
        with pytest.raises(IndexError):
            graph(index, bad, written)
        after = facts(model, graph, optimizer, written)
        assert {k: (v, after[k]) for k, v in before.items() if after[k] != v} == {}
    expected = model.calls + 1
    assert torch.isfinite(graph(index, good, written))
    assert model.calls == expected and model.table[9:13].eq(2).all()


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_training_continues_after_failed_runs_as_if_there_had_been_none(backend):
    losses = []
    for fails in (False, True):
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        graph = Train(model, optimizer, None, backend)
        index, good, bad, written = (
            torch.arange(4),
            torch.tensor([0, 1]),
            torch.tensor([0, 99]),
            torch.zeros(3),
        )
        for _ in range(3):
            if fails:
                with pytest.raises(IndexError):
                    graph(index, bad, written)
            losses.append(graph(index, good, written).item())
    assert losses[:3] == losses[3:]


def test_the_sign_of_a_zero_is_taken_back():
    class Negating(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.zero, self.zeros = torch.tensor(-0.0), torch.tensor([-0.0j])
            self.config.set_backend("aten")

        def build(self, index):
            self.zero.neg_()
            self.zeros.neg_()
            return torch.ones(2).index_select(0, index)

    graph = Negating()
    graph(torch.tensor([0]))
    before = graph.zero.signbit(), torch.view_as_real(graph.zeros).signbit().tolist()
    with pytest.raises(IndexError):
        graph(torch.tensor([9]))
    assert before == (graph.zero.signbit(), torch.view_as_real(graph.zeros).signbit().tolist())


def test_an_error_that_is_kept_keeps_no_copies():
    class Averaging(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.mean = torch.zeros(12345)
            self.config.set_backend("aten")

        def build(self, index):
            self.mean.add_(1)
            return torch.ones(2).index_select(0, index)

    graph = Averaging()
    graph(torch.tensor([0]))
    before = {id(x) for x in gc.get_objects() if type(x) is torch.Tensor}
    with pytest.raises(IndexError) as error:
        graph(torch.tensor([9]))
    new = [x for x in gc.get_objects() if type(x) is torch.Tensor and id(x) not in before]
    assert error.value.__traceback__ and not [x for x in new if x.numel() == 12345]


def selected(x):
    return x[x > 0]


# name -> (what build() computes before its writes, what it computes after them, good argument, bad argument)
REFUSED_AFTER_THE_WRITES = {
    "remainder by zero": (None, lambda x: 7 % x, torch.tensor([2]), torch.tensor([0])),
    "division of integers by zero": (
        None,
        lambda x: torch.div(7, x, rounding_mode="floor"),
        torch.tensor([2]),
        torch.tensor([0]),
    ),
    "number beyond a dtype": (None, lambda x: torch.full((2,), x, dtype=torch.uint8), 2.0, 1e30),
    "factor beyond a dtype": (None, lambda x: torch.add(torch.ones(2), 1, alpha=x), 2.0, 1e300),
    "view of a selection": (selected, lambda x: x.view(2, -1), torch.ones(4), torch.tensor([1.0, 0, 1, 1])),
    "sum with a selection": (
        selected,
        lambda x: x + torch.ones(4),
        torch.ones(4),
        torch.tensor([1.0, 0, 1, 1]),
    ),
    "item of a selection": (selected, lambda x: x[3] * 1, torch.ones(4), torch.tensor([1.0, 0, 1, 1])),
    "end of a storage": (None, lambda x: x.as_strided((9,), (1,)) * 1, torch.ones(9)[:4], torch.ones(4)),
}


@pytest.mark.parametrize("name", REFUSED_AFTER_THE_WRITES)
def test_writes_are_taken_back_if_an_operator_after_them_refuses_its_values(name):
    prepare, compute, good, bad = REFUSED_AFTER_THE_WRITES[name]

    class Counting(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.calls, self.mean = torch.tensor(0), torch.ones(3)
            self.config.set_backend("aten")

        def build(self, x):
            x = x if prepare is None else prepare(x)
            self.calls.add_(1)
            self.mean.mul_(0.5)
            return compute(x)

    graph = Counting()
    graph(good)
    graph(good)
    with pytest.raises((RuntimeError, IndexError)):
        graph(bad)
    assert graph.calls.item() == 2 and graph.mean.tolist() == [0.25] * 3
