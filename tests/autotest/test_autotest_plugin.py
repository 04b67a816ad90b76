"""The pytest plugin, and the programs of docs/autotest.md."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
from run_pytest import run_pytest

ROOT = Path(__file__).resolve().parents[2]

TEST = """
import torch as reference
from oneflow_autotest import bind

calls = []


class Library:
    def __getattr__(self, name):
        return getattr(reference, name)


api = bind(reference, Library(), names=("torch", "mylib"))


@api.autotest(n=50, check_graph=False)
def test_relu(test_case):
    calls.append(1)
    return api.torch.relu(api.random_tensor(2))


def test_count(test_case):
    test_case.assertEqual(len(calls), 4)
"""


def pytest_run(tmp_path, *options):
    (tmp_path / "test_mine.py").write_text(TEST)
    return run_pytest(tmp_path, *options, "test_mine.py")


def test_options_summary_and_fixture(tmp_path):
    ran = pytest_run(tmp_path, "--autotest-n", "4", "--autotest-seed", "3", "--autotest-database", "none")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (
        "2 passed" in ran.stdout
        and "autotest: 4 cases of 1 tests agree (0 refused by both, 0 as graphs" in ran.stdout
    )


def test_an_unknown_mode_is_refused(tmp_path):
    ran = pytest_run(tmp_path, "--autotest-graph", "sometimes")
    assert ran.returncode != 0 and "invalid choice" in ran.stderr


def test_the_harness_imports_neither_oneflow_nor_torch_by_itself():
    code = (
        "import oneflow_autotest, oneflow_autotest.pytest_plugin, oneflow_autotest.parity.table, sys;"
        " print([m for m in ('torch', 'oneflow') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    sources = [p.read_text() for p in (ROOT / "autotest").rglob("*.py")]
    assert len(sources) > 15 and not any(
        re.search(r"^\s*(import oneflow\b|from oneflow\b(?!_))", s, re.M) for s in sources
    )


def test_the_first_program_of_the_documentation():
    if not (ROOT / "docs" / "autotest.md").exists():
        pytest.skip("no docs/ here")
    text = (ROOT / "docs" / "autotest.md").read_text()
    scope = {"__name__": "documentation"}
    exec(re.search(r"```python\n(.*?)```", text, re.S).group(1), scope)
    result = unittest.TextTestRunner(stream=open(os.devnull, "w")).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(scope["TestConv"])
    )
    assert result.wasSuccessful() and result.testsRun == 1, result.errors + result.failures
