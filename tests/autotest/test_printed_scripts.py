"""The printed script of every kind of failure reproduces the failure, and passes without the bug."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from planted import failure
from planted_bugs import BUGS as PLANTED
from time_limits import seconds

import oneflow
import oneflow_autotest
from oneflow_autotest import Mismatch

HERE = Path(__file__).parent
# found when the module is made, before there is a case that a script could show
WITHOUT_CASE = {"a_module_without_its_bias"}
BUGS = {name: bug for name, bug in PLANTED.items() if name not in WITHOUT_CASE}


def script_of(error):
    return str(error).split("-" * 78)[1].lstrip("\n")


def failure_of(bug):
    api = oneflow_autotest.bind(torch, bug.library, names=("torch", "buggy"))
    return failure(api, bug.program, **bug.options)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """{bug: (failure, script, outcome with the bug, outcome without it)}; all scripts run in one child
    process.
    """
    folder, failures = tmp_path_factory.mktemp("scripts"), {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("DATABASE", "none"), ("SEED", "20"), ("SHRINK_SECONDS", "0")):
            patch.setenv(f"ONEFLOW_TEST_{name}", value)
        for name, bug in BUGS.items():
            failures[name] = failure_of(bug)
            (folder / f"{name}.py").write_text(script_of(failures[name]))
    ran = subprocess.run(
        [sys.executable, str(HERE / "run_scripts.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=seconds(300),
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout.splitlines()[-1])
    return {name: (failures[name], (folder / f"{name}.py").read_text(), *outcomes[name]) for name in BUGS}


@pytest.mark.parametrize("name", BUGS)
def test_the_script_of_a_planted_bug_fails(scripts, name):
    error, source, with_bug, _ = scripts[name]
    assert isinstance(error, Mismatch) and error.check == BUGS[name].check
    expected = "RuntimeError: no such operator" if name == "the_graph_raises" else "AssertionError"
    assert with_bug.startswith(expected), f"{with_bug}\n{source}"


@pytest.mark.parametrize("name", BUGS)
def test_the_script_passes_without_the_bug(scripts, name):
    assert scripts[name][3].startswith("no difference"), f"{scripts[name][3]}\n{scripts[name][1]}"


@pytest.mark.parametrize("name", BUGS)
def test_a_script_has_only_the_helpers_and_imports_that_it_uses(scripts, name):
    source = scripts[name][1]
    assert "oneflow_autotest" not in source
    tree = ast.parse(source)
    defined = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    defined += [
        a.asname or a.name for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names
    ]
    unused = [n for n in defined if len(re.findall(rf"\b{n}\b", re.sub(r"#.*", "", source))) < 2]
    assert not unused, f"{unused} in\n{source}"


def run(source, tmp_path):
    (tmp_path / "repeat.py").write_text(source)
    return subprocess.run(
        [sys.executable, str(tmp_path / "repeat.py")], capture_output=True, text=True, timeout=seconds(120)
    )


def test_inputs_that_the_test_makes_different_stay_different(tmp_path):
    def program(api):
        x = torch.ones(2)
        return api.torch.relu(api.GetDualObject("x", x, x + 1))

    source = script_of(failure(oneflow_autotest.bind(torch, oneflow, names=("torch", "oneflow")), program))
    ran = run(source, tmp_path)
    assert ran.returncode == 1 and "x0 differs" in ran.stderr


def test_a_script_says_when_the_failure_is_of_the_tests_own_code():
    def program(api):
        assert api.torch.relu(api.random_tensor(1)).pytorch.sum() > 100

    api = oneflow_autotest.bind(torch, torch, names=("torch", "same"))
    with pytest.raises(AssertionError) as caught:
        api.autotest(n=2, check_graph=False)(lambda case: program(api))(None)
    assert "# The test's own code raised this, so the script can only repeat the calls before it." in str(
        caught.value
    )


def test_gradients_of_a_library_without_them_are_refused_clearly():
    bug = BUGS["wrong_value_of_a_numpy_library"]
    api = oneflow_autotest.bind(torch, bug.faithful, names=("torch", "numpylib"))
    with pytest.raises(
        TypeError,
        match=(
            r"numpylib's tensors \(ndarray\) have no requires_grad_\(\): say"
            r" @autotest\(auto_backward=False\)"
        ),
    ):
        api.autotest(n=1)(lambda case: api.random_tensor(1))(None)


def test_numpy_itself_is_a_candidate():
    import numpy

    api = oneflow_autotest.bind(torch, numpy, names=("torch", "numpy"))

    @api.autotest(n=10, auto_backward=False)
    def program(case):
        x = api.random_tensor(2, low=1, high=2)
        x[0] = 3
        return api.torch.log(x + 1), api.torch.sum(x), api.torch.exp(x).shape

    program(None)


LIBRARY = """
import types
import torch

library = types.SimpleNamespace(
    tensor=torch.tensor, Tensor=torch.Tensor, float32=torch.float32, relu=lambda x: x.relu() + 1
)
"""


def report_of(library):
    api = oneflow_autotest.bind(torch, library, names=("torch", "mylib"), level="other implementation")
    return failure(api, lambda api: api.torch.relu(api.random_tensor(1)))


@pytest.mark.parametrize("name", ["library_of_a_test", "library_of_a_test.library"])
def test_the_script_of_a_library_beside_the_test_runs_from_another_folder(name, tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "library_of_a_test.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "tests")
    library = importlib.import_module("library_of_a_test")
    if name.endswith(".library"):
        library = library.library
    else:
        vars(library).update(vars(library.library))
        with (tmp_path / "tests" / "library_of_a_test.py").open("a") as file:
            file.write("globals().update(vars(library))\n")
    try:
        ran = run(script_of(report_of(library)), tmp_path)
    finally:
        del sys.modules["library_of_a_test"]
    assert ran.returncode == 1 and "AssertionError: v1 differs" in ran.stderr, ran.stderr


def test_a_script_says_if_its_library_cannot_be_imported():
    source = script_of(
        report_of(types.SimpleNamespace(tensor=torch.tensor, Tensor=torch.Tensor, relu=torch.sin))
    )
    line = "# The candidate is an object of the test, so save it as mylib.py on the path of this script.\n"
    assert f"{line}import mylib as flow\n" in source
