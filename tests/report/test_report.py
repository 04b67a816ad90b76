"""python -m oneflow.report runs a script and tells what ran where."""

import json
import subprocess
import sys
import warnings

import pytest
from time_limits import seconds

import oneflow as flow
import oneflow.nn as nn
from oneflow.report import GraphRecorder, as_text

SCRIPT = """
import sys
import oneflow as flow
import oneflow.nn as nn
import torch
from helper import loss_of

class Step(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model, self.scale = model, 1.0
        self.add_optimizer(flow.optim.AdamW(model.parameters()))
        self.config.set_backend("aten")

    def build(self, x):
        loss = loss_of(self.model(x)) * self.scale
        loss.backward()
        return loss

model = nn.Linear(4, 2)
step = Step(model)
for _ in range(4):
    step(flow.randn(3, 4))
step.scale = 2.0
step(flow.randn(3, 4))

@flow.compile_step(backend="aten")
def branches(x):
    total = loss_of(model(x))
    if total > 100:
        total = total * 2
    return total

for _ in range(3):
    branches(torch.ones(3, 4))
print("script", sys.argv[1:])
sys.exit(int(sys.argv[2]))
"""
HELPER = "import oneflow as flow\n\ndef loss_of(x):\n    return flow.cat([x, x]).square().mean()\n"


def run(folder, *arguments):
    (folder / "train.py").write_text(SCRIPT)
    (folder / "helper.py").write_text(HELPER)
    return subprocess.run(
        [sys.executable, "-m", "oneflow.report", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds(300),
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    done = run(folder, "--json", "report.json", "train.py", "--exit", "3")
    return done, json.loads((folder / "report.json").read_text())


def test_script_gets_its_arguments_and_its_exit_code_is_kept(report):
    done, data = report
    assert done.returncode == 3 == data["exit_code"], done.stderr
    assert done.stdout == "script ['--exit', '3']\n"


def test_graph_is_listed_with_its_calls_and_what_captured_it_again(report):
    graph = report[1]["graphs"][0]
    assert (graph["name"], graph["kind"], graph["backend"]) == ("Step_0", "graph", "aten")
    assert (graph["calls"], graph["program_calls"], graph["eager_calls"]) == (5, 5, 0)
    assert graph["captures"] == 2 and graph["created"][0].endswith("train.py")
    (reason,) = graph["reasons"]
    assert reason["subject"] == "guard of Step.scale" and "from 1.0 to 2.0" in reason["reason"]
    assert "loss_of(self.model(x)) * self.scale" in reason["location"]


def test_eager_calls_are_listed_with_the_line_that_needs_them(report):
    step = report[1]["graphs"][1]
    assert (step["name"], step["kind"]) == ("branches", "compiled step")
    assert (step["calls"], step["program_calls"], step["eager_calls"]) == (3, 0, 3)
    assert "if total > 100:" in step["reasons"][0]["reason"]
    assert "if total > 100:" in report[0].stderr


def test_names_are_listed_with_what_they_are_here(report):
    names = {use["name"]: use for use in report[1]["names"]}
    assert names["oneflow.cat"]["goes_to"] == "a function or class of this package"
    assert names["oneflow.cat"]["locations"] == ["helper.py:4"]  # an imported module beside the script
    assert names["torch.ones"]["goes_to"] == "torch, not through this package"


def test_rows_of_the_table_of_differences_are_listed(report):
    rows = {row["id"]: row for row in report[1]["differences"]}
    assert (
        rows["rng-streams"]["rank"] == "changes numbers" and "oneflow.randn" in rows["rng-streams"]["names"]
    )
    assert "rng-streams: oneflow.randn" in report[0].stderr


def test_error_of_the_script_is_shown_before_the_report(tmp_path):
    done = run(tmp_path, "train.py")  # sys.argv[2] is missing
    assert done.returncode == 1
    assert 0 < done.stderr.index("IndexError: list index") < done.stderr.index("oneflow.report train.py")


def test_missing_script_is_an_error(tmp_path):
    done = run(tmp_path, "absent.py")
    assert done.returncode == 2 and "there is no script absent.py" in done.stderr


def test_fallback_to_another_backend_is_listed():
    recorder = GraphRecorder()
    with recorder.recording():
        graph = nn.Graph.trace(flow.relu)
        graph.config.set_backend("aten")
        graph(flow.ones(2))
        message = (
            f"graph {graph.name}: the inductor backend could not compile it; it runs on the aten backend"
        )
        warnings.showwarning(UserWarning(message), UserWarning, "train.py", 1)
    assert "fell back: the inductor backend could not compile it" in as_text(recorder.records, [], [])


def test_nothing_is_counted_outside_of_a_recording():
    recorder = GraphRecorder()
    before = flow.nn.Graph.__call__, warnings.showwarning
    with recorder.recording():
        pass
    graph = nn.Graph.trace(flow.relu)
    graph.config.set_backend("aten")
    graph(flow.ones(2))
    assert recorder.records == [] and before == (flow.nn.Graph.__call__, warnings.showwarning)
    assert "no graph ran" in as_text([], [], [])
