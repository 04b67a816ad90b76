"""Scripts of the page assert what their cells claim: they run as they are, and fail if the behaviour is
broken.
"""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rows import recorded, row_of
from suite import Suite, golden, known_differences
from time_limits import seconds

import oneflow
from oneflow_autotest.parity import page

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = (
    "oneflow.add",
    "oneflow.Tensor.add_",
    "oneflow.Tensor.masked_fill",
    "oneflow.Tensor.mean",
    "oneflow.Tensor.cast",
    "oneflow.cat",
    "oneflow.equal",
    "oneflow.exp",
    "oneflow.nn.Linear",
    "oneflow.nn.BatchNorm1d",
    "oneflow.optim.SGD",
    "oneflow.optim.AdamW",
    "oneflow.slice_update",
    "oneflow.nn.functional.cross_entropy",
    "oneflow.randn",
    "oneflow.linalg.norm",
    "oneflow.nn.utils.clip_grad_norm_",
    "oneflow.arange",
    "oneflow.nn.functional.interpolate",
)
RUNNER = """
import contextlib, io, json, sys
for name, source in json.load(open(sys.argv[1])).items():
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, name, "exec"), {"__name__": "__main__"})
    except Exception as error:
        print(name, repr(error))
"""


def scripts_of(row):
    """{column: script} of the cells that have a result, as the page shows them."""
    scripts = {
        c: cell.get("script") or row["scripts"].get(page.MEANINGS[c][2])
        for c, cell in row["cells"].items()
        if cell["status"] != "none"
    }
    return {c: s for c, s in scripts.items() if s}


def run_script(source):
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "script", "exec"), {"__name__": "__main__"})


def error_of(source):
    with pytest.raises(BaseException) as caught:
        run_script(source)
    return type(caught.value)


def test_scripts_run_as_they_are_and_assert(tmp_path):
    """In the root of the repository, in one child process; scripts of recorded calls included."""
    suite = Suite()
    rows = [suite.row(name, "function") for name in SAMPLE]
    golden(rows, known_differences()["calls"])
    scripts = {f"{row['name']} [{c}]": script for row in rows for c, script in scripts_of(row).items()}
    assert len(scripts) > 60 and any("replay.py" in s for s in scripts.values())
    assert not [name for name, script in scripts.items() if "assert " not in script]
    (tmp_path / "scripts.json").write_text(json.dumps(scripts))
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, str(tmp_path / "scripts.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(300),
    )
    assert ran.returncode == 0 and not ran.stdout, ran.stdout + ran.stderr[-2000:]


@pytest.mark.parametrize("column", ["eager", "reference", "dtypes"])
def test_a_script_fails_if_a_value_is_wrong(column, monkeypatch):
    script = scripts_of(row_of("exp"))[column]
    run_script(script)
    monkeypatch.setitem(vars(oneflow), "exp", lambda x: x.exp() * 1.01)
    assert error_of(script) is AssertionError


def test_a_script_fails_if_a_gradient_is_wrong(monkeypatch):
    scripts = scripts_of(row_of("exp"))
    monkeypatch.setitem(vars(oneflow), "exp", lambda x: x.exp().detach() + (x - x.detach()))
    run_script(scripts["eager"])
    assert error_of(scripts["gradient"]) is AssertionError


def test_a_script_fails_if_a_graph_is_wrong(monkeypatch):
    script = scripts_of(row_of("exp"))["graph"]
    graph = oneflow.nn.Graph.__call__
    monkeypatch.setattr(
        oneflow.nn.Graph, "__call__", lambda self, *args: [[t + 1 for t in graph(self, *args)[0]], []]
    )
    assert error_of(script) is AssertionError


def test_a_script_fails_if_a_call_raises(monkeypatch):
    script = scripts_of(row_of("exp"))["eager"]

    def raising(x):
        raise TypeError("no exp")

    monkeypatch.setitem(vars(oneflow), "exp", raising)
    assert error_of(script) is AssertionError


def test_a_script_fails_if_a_wrong_call_is_accepted(monkeypatch):
    script = scripts_of(row_of("cat"))["errors"]
    run_script(script)
    monkeypatch.setitem(vars(oneflow), "cat", lambda *args, **kwargs: torch.zeros(1))
    assert error_of(script) is AssertionError


def test_a_script_fails_if_the_object_is_another_one(monkeypatch):
    script = scripts_of(Suite().row("oneflow.exp", "function"))["identity"]
    run_script(script)
    monkeypatch.setitem(vars(oneflow), "exp", lambda x: x.exp())
    assert error_of(script) is AssertionError


def test_a_script_of_a_method_calls_the_method_of_this_package(monkeypatch):
    """`oneflow.Tensor.std` is torch's own method; a call of a tensor reaches this package's."""
    row = Suite().row("oneflow.Tensor.std", "function")
    assert row["cells"]["identity"]["status"] == "own"
    script = scripts_of(row)["eager"]
    run_script(script)
    monkeypatch.setattr(torch.Tensor, "std", lambda self, *args, **kwargs: torch.zeros(1) - 7)
    assert error_of(script) is AssertionError


def test_a_script_of_a_module_fails_if_a_parameter_is_wrong(monkeypatch):
    scripts = scripts_of(row_of("nn.LayerNorm"))
    run_script(scripts["eager"])

    class LayerNorm(oneflow.nn.LayerNorm):
        def forward(self, *args):
            return super().forward(*args) + 1

    monkeypatch.setitem(vars(oneflow.nn), "LayerNorm", LayerNorm)
    assert error_of(scripts["eager"]) is AssertionError


def test_a_script_of_a_difference_holds_how_it_differs():
    known = recorded(Suite(known={}).row("oneflow.optim.AdamW", "class"))
    script = scripts_of(Suite(known=known).row("oneflow.optim.AdamW", "class"))["eager"]
    run_script(script)
    without_training = script.replace("o.step()", "pass")
    equal = script.replace("lib.optim.AdamW(p, lr=0.1)", "torch.optim.AdamW(p, lr=0.1)")
    assert without_training != script != equal
    assert error_of(without_training) is AssertionError
    assert error_of(equal) is AssertionError


def test_scripts_of_a_difference_have_the_gradients_of_the_check():
    known = recorded(Suite(known={}).row("oneflow.norm", "function"))
    row = Suite(known=known).row("oneflow.norm", "function")
    assert row["cells"]["gradient"]["status"] == "differs"
    for column in ("eager", "gradient", "dtypes"):
        run_script(scripts_of(row)[column])


def test_a_script_shows_a_sample_whose_result_has_elements(monkeypatch):
    """torch's first sample of roll is empty."""
    scripts = scripts_of(row_of("roll"))
    roll = oneflow.roll
    monkeypatch.setitem(vars(oneflow), "roll", lambda *args, **kwargs: roll(*args, **kwargs) + 1)
    for column in ("eager", "reference", "dtypes"):
        assert error_of(scripts[column]) is AssertionError


def test_a_script_of_a_graph_that_refuses_asserts_the_error():
    script = scripts_of(row_of("equal"))["graph"]
    run_script(script)
    assert error_of(script.replace("flow.equal(", "flow.add(")) is AssertionError
