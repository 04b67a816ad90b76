"""A torch without one of the private names: results stay right, or one error names the version of torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from oneflow._upstream.hooks import GRAPHS, HOOKS, INDUCTOR, OPTIM
from oneflow._upstream.missing import MissingName, error_of, missing_names

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each case runs in a forked process")


def outcomes(backend: str) -> dict[str, str]:
    """What hidden_names.py finds: {case: "right" or the error}."""
    environment = {**os.environ, "ONEFLOW_CACHE_SIZE": "0", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("hidden_names.py"), backend],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def is_clear(name: str, outcome: str) -> bool:
    return f"needs {name} (" in outcome and f"which torch {torch.__version__} does not have" in outcome


def test_each_name_that_graphs_and_optimizers_need_has_a_clear_error_and_others_are_not_needed():
    found = outcomes("aten")
    assert found.pop("import") == "right"
    assert found.pop("optional names") == "right"
    assert found.pop("frame hook") == "right"
    assert len(found) > 60
    modules = {"torch._VF"}  # a module cannot be hidden
    assert {name: o for name, o in found.items() if not is_clear(name, o) and name not in modules} == {}


@pytest.mark.slow
def test_inductor_compiles_without_each_name_that_only_saves_time():
    found = outcomes("inductor")
    assert found.pop("optional names") == "right"
    for name, outcome in found.items():
        if HOOKS[name].needed_by == INDUCTOR:
            assert is_clear(name, outcome) or outcome == "right", (name, outcome)
        else:
            assert outcome == "right", (name, outcome)


def test_this_torch_lacks_no_name():
    assert missing_names() == []


def test_an_error_about_a_name_of_the_ledger_says_what_torch_lacks(monkeypatch):
    monkeypatch.delattr(torch._C, "_swap_tensor_impl")
    error = error_of("graph net", AttributeError("module 'torch._C' has no attribute '_swap_tensor_impl'"))
    assert isinstance(error, MissingName)
    assert is_clear("torch._C._swap_tensor_impl", str(error))
    assert str(error).startswith("graph net needs")


def test_an_error_of_user_code_stays_as_it_is():
    error = AttributeError("'Net' object has no attribute '_swap_tensor_impl'")
    assert error_of("graph net", error) is error


def test_features_that_end_without_a_name_are_known():
    assert {hook.needed_by for hook in HOOKS.values()} == {"", GRAPHS, INDUCTOR, OPTIM, "speed", "a setting"}
