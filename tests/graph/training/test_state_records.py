"""graph.state_dict() contains only tensors and dicts of tensors, including options, schedules and scalers."""

from collections import Counter

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.nn as nn
from oneflow.nn.graph.storage.value_records import NotRecordable, is_record, record, value_of


class Train(nn.Graph):
    def __init__(self, optimizer=torch.optim.Adam, schedule=None, scaler=None):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(2, 1)
        optimizer = optimizer(self.layer.to(nn.Module).parameters(), lr=0.1)
        self.add_optimizer(optimizer, lr_sch=schedule(optimizer) if schedule else None)
        self.set_grad_scaler(scaler)

    def build(self, x):
        loss = self.layer(x).sum()
        loss.backward()
        return loss


class Counting(torch.optim.Optimizer):
    """A user's momentum optimizer, with Python numbers and a list of tensors in its state."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "betas": (0.5, 0.25), "name": "mine"})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["count"], state["past"] = 0, [torch.zeros_like(p)]
                state["count"] += 1
                state["past"][0].mul_(group["betas"][0]).add_(p.grad)
                p.sub_(state["past"][0], alpha=group["lr"])


VALUES = [
    {"a": [1, 2.5, None, True, "x", (1, (2,))], 3: {"b": Counter({4: 2})}},
    float("inf"),
    [],
    (),
    {},
    0.1 + 0.2,
    -0.0,
    2**70,
    "ü",
    {"t": [torch.arange(3), (torch.ones(2, 2),)]},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_value_survives_its_record(value):
    entries = record(value)
    assert is_record(entries) and all(isinstance(t, torch.Tensor) for t in entries.values())
    back = value_of({k: t.numpy() for k, t in entries.items()})
    assert str(back) == str(value) and type(back) is type(value)


def test_objects_cannot_be_recorded():
    with pytest.raises(NotRecordable, match="object"):
        record({"a": object()})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"tensor": "5"}',
        '{"eval": "1"}',
        '{"a": 1, "b": 2}',
        '{"dict": [[[], 1]]}',
        '{"dict": 3}',
        "[" * 100000,
    ],
)
def test_damaged_record_is_an_error(text):
    with pytest.raises(ValueError, match="cannot be read"):
        value_of({"json": torch.tensor(list(text.encode()), dtype=torch.uint8)})


SCHEDULES = {
    "none": None,
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 1, 3], 0.5),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "oneflow's MultiStepLR": lambda o: flow.optim.lr_scheduler.MultiStepLR(o, [1, 3], 0.5),
    "oneflow's WarmupLR": lambda o: flow.optim.lr_scheduler.WarmupLR(
        flow.optim.lr_scheduler.CosineDecayLR(o, 5), 0.5, 2
    ),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)],
        [2],
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "optimizer",
    [flow.optim.SGD, torch.optim.Adam, flow.optim.LAMB, Counting],
    ids=lambda o: f"{o.__module__.partition('.')[0]}.{o.__name__}",
)
def test_training_goes_on_from_the_arrays_of_a_state(optimizer, schedule):
    def make():
        return Train(optimizer, SCHEDULES[schedule], flow.amp.GradScaler(init_scale=8.0, growth_interval=2))

    graph, x = make(), torch.ones(1, 2)
    for _ in range(3):
        graph(x)
    state = graph.state_dict()
    values = [t for v in state.values() for t in (v.values() if isinstance(v, dict) else [v])]
    assert all(isinstance(v, torch.Tensor) for v in values)
    arrays = {
        k: {n: t.numpy().copy() for n, t in v.items()} if isinstance(v, dict) else v.numpy().copy()
        for k, v in state.items()
    }
    want = [graph(x).item() for _ in range(3)]
    other = make()
    tensors = {
        k: {n: torch.from_numpy(np.asarray(t)) for n, t in v.items()}
        if isinstance(v, dict)
        else torch.from_numpy(v)
        for k, v in arrays.items()
    }
    other.load_state_dict(tensors)
    assert [other(x).item() for _ in range(3)] == want
    assert other._opts[0][0].param_groups[0]["lr"] == graph._opts[0][0].param_groups[0]["lr"]


def test_states_of_earlier_releases_are_loaded():
    graph, x = Train(schedule=SCHEDULES["StepLR"]), torch.ones(1, 2)
    for _ in range(3):
        graph(x)
    older = {
        k: value_of(v) if k in ("optimizer_0", "lr_scheduler_0") else v for k, v in graph.state_dict().items()
    }
    del older["optimizer_0"]["state"]
    older = {
        k: {n: t.clone() for n, t in v.items()}
        if k == "layer"
        else v.clone()
        if isinstance(v, torch.Tensor)
        else v
        for k, v in older.items()
    }
    want = [graph(x).item() for _ in range(3)]
    other = Train(schedule=SCHEDULES["StepLR"])
    other.load_state_dict(older)
    assert [other(x).item() for _ in range(3)] == want


@pytest.mark.parametrize(
    "options",
    [
        5,
        {"param_groups": 3},
        {"param_groups": ["lr"]},
        {"state": []},
        {"param_groups": [{"lr": 0.5}], "state": 1},
    ],
)
def test_options_of_another_form_change_nothing(options):
    graph = Train()
    before = {k: v.clone() for k, v in graph.state_dict()["layer"].items()}
    with pytest.raises(TypeError, match="optimizer_0"):
        graph.load_state_dict(
            {"layer": {k: v + 1 for k, v in before.items()}, "optimizer_0": record(options)}
        )
    assert all(torch.equal(v, before[k]) for k, v in graph.state_dict()["layer"].items())


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("layer.weight-m", "text", "layer.weight-m is a str"),
        ("layer.weight-m", torch.ones(1, 2, dtype=torch.int8), "dtype torch.int8"),
        ("layer.weight-m", torch.ones(1, 2, dtype=torch.complex64), "dtype torch.complex64"),
        ("layer.weight-m", torch.ones(1, 2, device="meta"), "no values"),
        ("layer.weight-m", torch.ones(1, 2).to_sparse(), "layout torch.sparse_coo"),
        ("layer", {"weight": torch.ones(1, 2, device="meta"), "bias": torch.ones(1)}, "no values"),
        ("layer", {"weight": torch.ones(1, 2).to_sparse(), "bias": torch.ones(1)}, "layout torch.sparse_coo"),
        ("System-Train-TrainStep", "text", "number of steps"),
        ("System-Train-TrainStep", torch.ones(0), "number of steps"),
        (3, 4, "unknown \\[3\\]"),
    ],
)
def test_damaged_entries_change_nothing(entry, value, message):
    source = Train(flow.optim.Adam)
    source(torch.ones(1, 2))
    state = {**source.state_dict(), entry: value}
    graph = Train(flow.optim.Adam)
    before = {k: v.clone() for k, v in graph.state_dict()["layer"].items()}
    with pytest.raises((TypeError, RuntimeError), match=message):
        graph.load_state_dict(state)
    assert all(torch.equal(v, before[k]) for k, v in graph.state_dict()["layer"].items())
    assert not graph._opts[0][0].state


def test_object_in_a_schedule_is_named():
    class Odd(torch.optim.lr_scheduler.StepLR):
        def __init__(self, optimizer):
            self.helper = object()
            super().__init__(optimizer, 2)

    with pytest.warns(UserWarning, match="helper \\(object\\) of schedule 0"):
        Train(schedule=Odd).state_dict()


def test_slots_of_adadelta_have_oneflows_names():
    """OneFlow 0.9.0's graph.state_dict() has layer.weight-square_avgs and layer.weight-acc_deltas."""
    graph, x = Train(flow.optim.Adadelta), flow.ones(2, 2)
    graph(x)
    state = {
        k: {n: t.clone() for n, t in v.items()} if isinstance(v, dict) else v.clone()
        for k, v in graph.state_dict().items()
    }
    assert {"layer.weight-square_avgs", "layer.weight-acc_deltas"} <= set(state)
    want = graph(x)
    other = Train(flow.optim.Adadelta)
    other.load_state_dict(state)
    assert torch.equal(other(x), want)
    older = {
        k.replace("square_avgs", "mean_square").replace("acc_deltas", "acc_delta"): v
        for k, v in state.items()
    }
    third = Train(flow.optim.Adadelta)
    third.load_state_dict(older)
    assert torch.equal(third(x), want)
