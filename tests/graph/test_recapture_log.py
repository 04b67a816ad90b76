"""ONEFLOW_LOGS=recompiles writes why a graph captures again, and nothing else."""

import pytest

import oneflow as flow
import oneflow.nn as nn


class Scale(nn.Graph):
    def __init__(self):
        super().__init__()
        self.factor = 2.0
        self.model = nn.Linear(3, 3)
        self.config.set_backend("aten")

    def build(self, x):
        return self.model(x) * self.factor


@pytest.fixture
def lines(monkeypatch, capfd):
    monkeypatch.setenv("ONEFLOW_LOGS", "recompiles")

    def written():
        return capfd.readouterr().err.splitlines()

    return written


def test_first_capture_and_warm_calls_have_no_line(lines):
    graph = Scale()
    graph(flow.ones(2, 3))
    graph(flow.ones(2, 3))
    assert lines() == []


def test_changed_value_has_a_line_with_both_values(lines):
    graph = Scale()
    graph(flow.ones(2, 3))
    graph.factor = 5.0
    graph(flow.ones(2, 3))
    captured_again = lines()
    assert captured_again[0].startswith(f"oneflow: graph {graph.name} captures again: guard of")
    assert "changed from 2.0 to 5.0" in captured_again[0]
    assert sum("captures again" in line for line in captured_again) == 1


def test_another_layout_of_an_argument_has_a_line_with_both_layouts(lines):
    graph = Scale()
    graph(flow.ones(2, 3))
    graph.model.to(nn.Module).double()
    graph(flow.ones(2, 3, dtype=flow.float64))
    (line,) = lines()
    assert "entry 0 of the arguments was float32[2, 3] cpu" in line and "and is float64[2, 3] cpu" in line


def test_another_structure_of_the_arguments_has_a_line(lines):
    graph = nn.Graph.trace(lambda *values: sum(values))
    graph.config.set_backend("aten")
    graph(flow.ones(2))
    graph(flow.ones(2), flow.ones(2))
    assert "another structure" in lines()[0]


def test_nothing_is_written_without_the_variable(monkeypatch, capfd):
    monkeypatch.delenv("ONEFLOW_LOGS", raising=False)
    graph = Scale()
    graph(flow.ones(2, 3))
    graph.factor = 5.0
    graph(flow.ones(2, 3))
    assert "captures again" not in capfd.readouterr().err
