"""python -m oneflow.autoprof: profile_* methods of a test file become lines of a table and of a CSV file."""

import csv

import pytest

from oneflow import autoprof

FILE = """
import unittest
import oneflow as flow
import oneflow.unittest
from oneflow.test_utils.automated_test_util import *


class TestSums(flow.unittest.TestCase):
    def test_never_runs(test_case):
        raise AssertionError

    @profile(torch.sum)
    def profile_sum(test_case):
        torch.sum(torch.ones(2, 3), dim=0)
        torch.sum(torch.ones(4))

    @profile(torch.cat)
    def profile_cat(test_case):
        torch.cat([torch.ones(2), torch.ones(3)], {dim})
"""


@pytest.mark.parametrize("dim", [0, 5])
def test_a_file_is_measured(dim, tmp_path, monkeypatch, capsys):
    name = f"autoprof_sums_{dim}"
    (tmp_path / f"{name}.py").write_text(FILE.replace("{dim}", str(dim)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for variable, value in (("WARMUP_NUM", "1"), ("RUN_NUM", "2"), ("CSV", "times")):
        monkeypatch.setenv(f"ONEFLOW_PROFILE_{variable}", value)
    assert autoprof.main([name]) == (0 if dim == 0 else 1), "an operator that fails is a failure of the run"
    header, *rows = csv.reader((tmp_path / "times.csv").read_text().splitlines())
    assert tuple(header) == autoprof.HEADER
    on_cpu = [r for r in rows if r[3] == "cpu"]
    assert [r[:3] for r in on_cpu if r[0] == "sum"] == [
        ["sum", a, lib] for a in ("Tensor([2, 3]), dim=0", "Tensor([4])") for lib in ("OneFlow", "PyTorch")
    ]
    assert [r[1] for r in on_cpu if r[0] == "cat"] == (
        ["[Tensor([2]), Tensor([3])], 0"] * 2 if dim == 0 else []
    )
    assert all(r[4:6] == ["1", "2"] and 0 < float(r[6]) <= float(r[7]) for r in on_cpu)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:3] == ["operator", "arguments", "library"] and len(printed) == 1 + len(rows)
