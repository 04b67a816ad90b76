"""Instrumented copies of bytecode behave like the original, in every installed Python version."""

import shutil
import subprocess
import sys
from pathlib import Path

import observe_programs
import pytest

PYENV = Path.home() / ".pyenv" / "versions"


def test_every_instruction_of_this_python_is_in_a_table_and_programs_run_instrumented():
    assert len(observe_programs.check()) > 1000


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"])
def test_other_pythons(version):
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
    from oneflow._graph.observe import why_unobserved
    from oneflow._graph.observe.guards.checkers import probed_features

    assert why_unobserved() is None
    features = probed_features()
    if features is None:
        pytest.skip("csrc/guards.cpp was not built")
    assert features.class_versions and (features.dict_versions or sys.version_info >= (3, 13))
