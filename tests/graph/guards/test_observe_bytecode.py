"""Instrumented copies of bytecode behave like the original, in every installed Python version."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import observe_programs
import pytest
import torch

from oneflow._graph.observe.hooks.entry_points import HOOKS
from oneflow._graph.observe.instrumentation.frames import observed_frames

PYENV = Path.home() / ".pyenv" / "versions"


def test_every_instruction_of_this_python_is_in_a_table_and_programs_run_instrumented():
    assert len(observe_programs.check()) > 1000


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"])
def test_instrumented_programs_run_alike_in_other_pythons(version):
    interpreters = [str(path / "bin" / "python") for path in sorted(PYENV.glob(f"{version}.*"))]
    interpreters = interpreters or [path for path in [shutil.which(f"python{version}")] if path]
    if not interpreters:
        pytest.skip(f"no Python {version} here")
    done = subprocess.run([interpreters[-1], observe_programs.__file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_unknown_instruction_is_noticed(monkeypatch):
    import dis

    monkeypatch.setattr(dis, "opmap", {**dis.opmap, "READ_BY_MAGIC": 255})
    with pytest.raises(AssertionError, match="READ_BY_MAGIC"):
        observe_programs.check()


def test_this_python_observes_and_the_compiled_test_agrees_with_python():
    from oneflow._graph.guards.native import probed_features
    from oneflow._graph.observe import why_unobserved

    assert why_unobserved() is None
    features = probed_features()
    if features is None:
        pytest.skip("csrc/guards.cpp was not built")
    assert features.class_versions and (features.dict_versions or sys.version_info >= (3, 13))


def test_a_capture_that_was_left_without_its_end_does_not_switch_torch_compile_off():
    def function(x):
        return x * 2 + 1

    module, frames = importlib.import_module("torch._dynamo.eval_frame"), torch._C._dynamo.eval_frame
    setters = module.set_eval_frame, module._maybe_set_eval_frame
    interrupted = observed_frames(HOOKS, lambda code, names: None)
    interrupted.__enter__()
    frames.set_eval_frame(interrupted.before)  # and the interrupt comes here
    try:
        with observed_frames(HOOKS, lambda code, names: None):
            pass
        compiled = torch.compile(function, backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    finally:
        module.set_eval_frame, module._maybe_set_eval_frame = setters
