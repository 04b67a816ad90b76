"""An error in build() ends at the user's line, has eager mode's class and text, and no frames of the engine."""

import traceback

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn
from oneflow._graph.program import passes


class Mismatch(nn.Graph):
    def __init__(self, strict):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3))
        self.config.set_backend("aten")
        self.config.strict(strict)

    def build(self, x):
        return self.model(x)  # the shapes do not fit


X = flow.ones(2, 4)


def frames(error):
    return [(frame.name, frame.line) for frame in traceback.extract_tb(error.__traceback__)]


def run(function, *args):
    with pytest.raises(Exception) as error:
        function(*args)
    return error.value


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("call", [Mismatch.__call__, Mismatch.build_graph])
def test_error_of_build_ends_at_the_line_of_the_user(strict, call):
    eager = run(nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)), X)
    error = run(call, Mismatch(strict), X)
    assert (type(error), str(error)) == (type(eager), str(eager))
    assert frames(error)[-1] == ("build", "return self.model(x)  # the shapes do not fit")
    assert len(frames(error)) <= 4
    printed = "".join(traceback.format_exception(error))
    assert "During handling" not in printed and "The above exception" not in printed


@pytest.mark.eager_calls
def test_error_of_a_compiled_step_ends_at_the_line_of_the_user():
    @flow.compile_step
    def step(x):
        return x @ x

    assert frames(run(step, X))[-1] == ("step", "return x @ x")


def test_error_of_a_renamed_function_ends_at_the_line_of_the_user():
    class Joins(nn.Graph):
        def build(self, x):
            return flow.cat([x, flow.ones(3, 3)])

    assert frames(run(Joins(), X))[-1][0] == "build"


@pytest.mark.parametrize("strict", [False, True])
def test_wrong_number_of_arguments_ends_at_the_call(strict):
    error = run(Mismatch(strict), X, X)
    assert isinstance(error, TypeError) and "build() takes 2 positional arguments" in str(error)
    assert len(frames(error)) <= 3


def test_error_that_the_user_handles_when_the_graph_raises_stays_the_context():
    def handles():
        try:
            raise KeyError("earlier")
        except KeyError:
            Mismatch(True)(X)

    assert isinstance(run(handles).__context__, KeyError)


def test_all_frames_are_kept_on_request(monkeypatch):
    monkeypatch.setenv("ONEFLOW_LOGS", "tracebacks")
    assert len(frames(run(Mismatch(True), X))) > 10


def test_error_inside_torch_that_build_does_not_cause_keeps_its_frames(monkeypatch):
    monkeypatch.setattr(passes, "run", torch.nn.functional.interpolate)  # for these arguments it raises
    assert "interpolate" in [name for name, _ in frames(run(nn.Graph.trace(torch.relu), X))]


def test_defect_of_the_engine_keeps_its_frames(monkeypatch):
    monkeypatch.setattr(passes, "run", None)
    error = run(nn.Graph.trace(torch.relu), X)
    assert isinstance(error, TypeError) and len(frames(error)) > 4
