"""What captures and calls teach the next capture of a graph: `Assumptions`."""

import warnings

import pytest
import torch

import oneflow as flow
from oneflow._graph.assumptions import Assumptions, DependentSizes
from oneflow._graph.capture.capture import Capture
from oneflow._graph.config import Config
from oneflow._graph.definition import GraphDefinition
from oneflow._graph.explanations import Explanation
from oneflow._graph.guards.failure import Failure


def captured(definition, assumptions, *args):
    """The program of one capture, without an engine."""
    return Capture(definition, assumptions, args, {}, Config(), {}).run().program


def operators(program):
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def test_a_capture_keeps_the_modes_that_the_first_capture_noted():
    dropout, assumptions = torch.nn.Dropout(), Assumptions()
    definition = GraphDefinition(lambda x: dropout(x), modules={"dropout": dropout})
    x = torch.ones(3)
    first = operators(captured(definition, assumptions, x))
    dropout.eval()
    assert operators(captured(definition, assumptions, x)) == first != []
    assert operators(captured(definition, Assumptions(), x)) != first
    assert not dropout.training


def test_dependent_sizes_become_symbols_once_and_never_after_a_failed_capture():
    assumptions = Assumptions()
    assert not assumptions.has_symbols_for_dependent_sizes
    assert assumptions.let_dependent_sizes_vary() and assumptions.has_symbols_for_dependent_sizes
    assert not assumptions.let_dependent_sizes_vary()
    assumptions.dependent_sizes = DependentSizes.NUMBERS_ONLY
    assert not assumptions.let_dependent_sizes_vary() and not assumptions.has_symbols_for_dependent_sizes


def test_a_failed_capture_with_symbols_is_remembered():
    def build(x, mask):
        total = x.sum()
        for value in x[mask]:  # a loop needs the size as a number
            total = total * value
        return total

    graph = flow.nn.Graph.trace(build)
    x = torch.tensor([2.0, 3.0])
    for mask in ([True, False], [True, True], [False, True]):
        assert torch.equal(graph(x, torch.tensor(mask)), build(x, torch.tensor(mask)))
    assert graph._engine.assumptions.dependent_sizes is DependentSizes.NUMBERS_ONLY


def test_a_changed_option_is_live_in_the_next_capture():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.5)

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.add_optimizer(optimizer)

        def build(self):
            loss = weight.sum()
            loss.backward()
            return loss

    step = Step()
    step()
    assert step._engine.assumptions.live_options == {}
    for momentum in (0.6, 0.7, 0.8):
        optimizer.param_groups[0]["momentum"] = momentum
        step()
    assert step._engine.assumptions.live_options == {0: {"momentum"}}
    assert len(step._engine.programs) == 2


def test_the_latest_change_of_a_guard_replaces_its_explanation():
    assumptions = Assumptions()
    assumptions.explain(Explanation("an option", "changed"))
    assumptions.explain(Explanation("an option", "changed"))
    for old, new in (("1", "2"), ("2", "3")):
        explanation, count = assumptions.explain_failure(Failure("scale", old, new))
    assert count == 2 and "from 2 to 3" in explanation.reason and "each of 2 changes" in explanation.reason
    assert [e.subject for e in assumptions.explanations] == ["an option", "guard of scale"]


def test_a_subject_is_reported_once_for_each_graph():
    assumptions = Assumptions()
    assert [assumptions.is_first_report(subject) for subject in ("a", "b", "a")] == [True, True, False]
    assert Assumptions().is_first_report("a")


def test_captures_with_the_same_assumptions_warn_once():
    def build(x, items):
        items.append(x)
        return x + 1

    definition, assumptions = GraphDefinition(build), Assumptions()
    with pytest.warns(UserWarning, match="changes a list or dict"):
        captured(definition, assumptions, torch.ones(2), [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured(definition, assumptions, torch.ones(3), [])
