"""oneflow.scan: names of a code base, judged without importing it."""
import subprocess
import sys

import pytest
from oneflow import scan

SOURCE = '''
import oneflow as flow
import torch.nn as nn
from oneflow.optim import AdamW as Best
from torch.nn import functional as F

def f(x):
    import oneflow.nn.init as init
    init.zeros_(x)
    return flow.nn.no_such_layer(x) + F.relu(flow.ones(2).sum()) + nn.Linear(1, 1)(x)

opt = Best([])
raise SystemExit("importing this file would end the process")
'''


def test_names_are_found_with_their_lines():
    found = dict(scan.names_in(SOURCE))
    assert found["oneflow.nn.no_such_layer"] == 10 and found["torch.nn.functional.relu"] == 10
    assert {"oneflow.optim.AdamW", "oneflow.nn.init.zeros_", "oneflow.ones", "torch.nn.Linear"} <= set(found)


@pytest.mark.parametrize("name, state", [
    ("oneflow.abs", "works"), ("torch.nn.TransformerEncoder", "works"), ("oneflow.optim.AdamW", "differs"), ("oneflow.nn.no_such_layer", "missing"),
    ("oneflow.float32.is_floating_point", "works"), ("torch.no_module.at_all", "missing"),
])
def test_judgement(name, state):
    assert scan.judge(name)[0] == state


def test_command_reports_and_sets_the_exit_code(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "b.py").write_text("import torch\ntorch.abs(torch.ones(1))\n")

    def run(path):
        return subprocess.run([sys.executable, "-m", "oneflow.scan", str(path)], capture_output=True, text=True, cwd="/")

    bad = run(tmp_path)
    assert bad.returncode == 1 and "missing  oneflow.nn.no_such_layer" in bad.stdout and f"{tmp_path / 'a.py'}:10" in bad.stdout
    assert "broken.py: not read, line 1" in bad.stderr
    assert "1 missing" in bad.stdout.splitlines()[-1]
    good = run(tmp_path / "good")
    assert good.returncode == 0 and good.stdout.strip() == "2 names: 2 work, 0 work with a difference, 0 missing"
    assert run(tmp_path / "nowhere").returncode == 2
    (tmp_path / "empty").mkdir()
    for unread in ("broken.py", "empty"):
        nothing = run(tmp_path / unread)
        assert nothing.returncode == 2 and "no Python file could be read" in nothing.stderr and nothing.stdout == ""


def test_a_file_is_read_in_its_own_encoding(tmp_path):
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfimport torch\ntorch.abs(1)\n")
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nimport torch\ns = '\xe9'; torch.sin(1)\n")
    assert set(scan.scan([tmp_path])) == {"torch.abs", "torch.sin"}
