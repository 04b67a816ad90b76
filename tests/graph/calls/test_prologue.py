"""The generated prologue: order of tests, repairs, live values; and locations that read and write."""

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.call.prologue import Prologue, Stage, Test, gather
from oneflow._graph.program.locations import Argument, GroupOption, ModuleTensor, OptimizerState


@pytest.fixture(scope="module")
def entry():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, scale, x):
            loss = (self.model(x) * scale).sum()
            loss.backward()
            return loss

    graph = Training()
    graph.config.set_backend("aten")
    graph(2, torch.ones(3, 2))
    return graph._engine.last_entry


def prologue_of(entry, *tests):
    return Prologue(
        entry.program, entry.live, lambda scope, tensors: [test(scope, tensors) for test in tests]
    )


def test_prologue_returns_the_live_values(entry):
    args = 2, torch.ones(3, 2)
    values, expected = prologue_of(entry).run(args), gather(entry.program, entry.live, args)
    assert len(values) == len(expected) and all(a is b for a, b in zip(values, expected))


def test_failed_condition_rejects_the_call(entry):
    allowed = [True]
    prologue = prologue_of(entry, lambda scope, tensors: Test("allowed", f"{scope.bind(allowed)}[0]"))
    assert prologue.run((2, torch.ones(3, 2))) is not None
    allowed[0] = False
    assert prologue.run((2, torch.ones(3, 2))) is None and not prologue.holds_without_arguments()


def test_repaired_condition_serves_the_call(entry):
    allowed, calls = [False], []

    def repair():
        calls.append("repair")
        allowed[0] = True
        return True

    prologue = prologue_of(
        entry, lambda scope, tensors: Test("allowed", f"{scope.bind(allowed)}[0]", on_failure=repair)
    )
    assert prologue.run((2, torch.ones(3, 2))) is not None and calls == ["repair"]


def test_tests_see_arguments_and_values_at_their_stage(entry):
    seen = []
    prologue = prologue_of(
        entry,
        lambda scope, tensors: Test(
            "values", f"{scope.bind(seen.append)}(('values', len(values))) is None", Stage.VALUES
        ),
        lambda scope, tensors: Test(
            "arguments", f"{scope.bind(seen.append)}(('arguments', args[0])) is None", Stage.ARGUMENTS
        ),
    )
    prologue.run((2, torch.ones(3, 2)))
    assert seen == [("arguments", 2), ("values", len(entry.program.slots))]


def test_slots_have_typed_locations(entry):
    locations = {slot.name: slot.location for slot in entry.program.slots}
    assert locations["x"] == Argument(1)
    assert locations["model.weight"] == ModuleTensor("model.weight")
    assert locations["optimizer0.group0.lr"] == GroupOption(0, 0, ("lr",))
    assert locations["optimizer0.model.weight.exp_avg"] == OptimizerState(0, "model.weight", ("exp_avg",))


def test_missing_optimizer_state_is_an_error_and_stays_missing(entry):
    location = OptimizerState(0, "model.weight", ("no such key",))
    with pytest.raises(KeyError):
        location.read(entry.live)
    location.write(entry.live, 3)
    assert location.read(entry.live) == 3
    location.remove(entry.live)
    assert "no such key" not in entry.live.state_of(0, "model.weight")
