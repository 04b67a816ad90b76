"""The parity suite finds planted bugs, covers every documented name, and its baseline fails on a
regression.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from planted import graph_class
from rows import row_of, statuses
from written import LEFT_OUT, WRITTEN

from oneflow_autotest.parity import page, table
from oneflow_autotest.summary import Progress, elapsed

HERE = Path(__file__).parent
NAMES = [n[0] for n in json.loads((HERE / "names.json").read_text())]


def test_a_faithful_function_passes_everywhere():
    assert statuses(row_of("exp")) == {
        "identity": "same",
        "eager": "pass",
        "errors": "none",
        "gradient": "pass",
        "graph": "pass",
        "reference": "pass",
        "golden": "none",
        "dtypes": "pass",
    }


def test_a_wrong_value_fails_with_a_script():
    row = row_of("exp", exp=lambda x: x.exp() * 1.01)
    by_check = statuses(row)
    assert (by_check["identity"], by_check["eager"], by_check["reference"], by_check["graph"]) == (
        "own",
        "fail",
        "fail",
        "pass",
    )
    assert (
        "outcome(run, torch, torch.exp), outcome(run, flow, flow.exp)" in row["cells"]["eager"]["script"]
        and "differs" in row["cells"]["eager"]["detail"]
    )


def test_a_wrong_gradient_only():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            return g

    by_check = statuses(row_of("exp", exp=Exp.apply))
    assert (by_check["eager"], by_check["gradient"]) == ("pass", "fail")


def test_a_wrong_dtype_only():
    by_check = statuses(row_of("exp", exp=lambda x: x.exp().float() if x.dtype == torch.float64 else x.exp()))
    assert (by_check["eager"], by_check["dtypes"]) == ("pass", "fail")


def test_a_wrong_graph_only():
    by_check = statuses(row_of("exp", nn__Graph=graph_class(outputs=lambda t: t + 1)))
    assert (by_check["eager"], by_check["graph"]) == ("pass", "fail")


def test_a_missing_argument():
    row = row_of("sum", sum=lambda x: x.sum())
    assert statuses(row)["eager"] == "fail" and "raised TypeError" in row["cells"]["eager"]["detail"]


def test_a_module_with_a_wrong_parameter_gradient():
    class Linear(torch.nn.Linear):
        def forward(self, input):
            return super().forward(input) + (self.weight.sum() - self.weight.sum().detach())

    by_check = statuses(row_of("nn.Linear", nn__Linear=Linear))
    assert (by_check["eager"], by_check["gradient"]) == ("pass", "fail")
    assert statuses(row_of("nn.Linear"))["gradient"] == "pass"


def test_a_graph_that_refuses_is_told_apart_from_one_that_fails():
    row = row_of("equal")
    assert (
        statuses(row)["graph"] == "refused"
        and "needs the values of tensors" in row["cells"]["graph"]["detail"]
    )


def test_the_page_tells_what_ran(tmp_path):
    rows = [
        row_of("exp"),
        row_of("sum", sum=lambda x: x.sum()),
        {**table.new_row("oneflow.hub.load", "oneflow.hub"), "left_out": "needs the network"},
    ]
    page.write(rows, tmp_path / "p.html", "t")
    text = (tmp_path / "p.html").read_text()
    assert (
        "oneflow.sum" in text
        and "raised TypeError" in text
        and "not run: needs the network" in text
        and "2 / 3" in text
    )


def test_every_cell_of_the_page_opens_and_the_legend_explains_every_mark(tmp_path):
    rows = [
        row_of("exp"),
        {**table.new_row("oneflow.hub.load", "oneflow.hub"), "left_out": "needs the network"},
    ]
    page.write(rows, tmp_path / "p.html", "t")
    text = (tmp_path / "p.html").read_text()
    body = text[text.index("<tbody>") : text.index("</tbody>")]
    assert body.count('<td class="c"><button') == len(table.COLUMNS) and body.count(
        '<td class="left"'
    ) == body.count("<button>not run: ")
    assert "not checked, because the check does not apply to this name" in text and set(page.MEANINGS) == set(
        table.COLUMNS
    )
    assert set(page.STATUSES) == set(page.MARKS) and "gradients of inputs and parameters" in text
    details, parts = map(
        json.loads, re.search(r"const details = (.*), parts = (.*), columns =", text).groups()
    )
    short = details["oneflow.exp"]["scripts"]["gradient"]
    assert "return gradients_of(out, [t0])" in short
    assert re.sub(r"#part(\d+)\n", lambda m: parts[int(m[1])], short) == rows[0]["scripts"]["gradient"]


def test_names_and_details_are_escaped(tmp_path):
    row = {**row_of("exp"), "name": "<img src=x>"}
    table.put(row, "eager", "fail", "</script><b>", "print('</script>')")
    page.write([row], tmp_path / "p.html", "a & b")
    text = (tmp_path / "p.html").read_text()
    assert "<img" not in text and text.count("</script>") == 1 and "a &amp; b" in text


def test_a_parity_run_says_how_far_it_is_unless_quiet(capsys, monkeypatch):
    for quiet, expected in (
        ("", "parity: 100 of 250 names, 0 s\nparity: 200 of 250 names, 0 s\n"),
        ("1", ""),
    ):
        monkeypatch.setenv("ONEFLOW_QUIET", quiet)
        progress = Progress("parity", "names", 250, 100)
        for _ in range(250):
            progress.add()
        assert capsys.readouterr().err == expected
    assert elapsed(125.2) == "2 min 5 s"


def test_every_documented_name_is_run_or_left_out_with_a_reason():
    baseline = json.loads((HERE / "baseline.json").read_text())
    assert set(baseline) == set(NAMES) and len(NAMES) == 960
    unexplained = [n for n, cells in baseline.items() if cells.get("left out", "") == "no case"]
    assert not unexplained
    assert sum("left out" not in cells for cells in baseline.values()) >= 800
    assert not [n for n, cells in baseline.items() if "fail" in cells.values()]


def test_written_cases_and_reasons_are_about_documented_names():
    assert set(WRITTEN) <= set(NAMES) | {n for n in WRITTEN if n.startswith("oneflow.Tensor.")}
    assert not [pattern for pattern, _ in LEFT_OUT if not any(re.search(pattern, n) for n in NAMES)]


@pytest.mark.slow
def test_a_part_of_the_suite_from_the_command_line(tmp_path):
    ran = subprocess.run(
        [
            sys.executable,
            str(HERE / "run.py"),
            "--jobs",
            "1",
            "--only",
            r"oneflow\.(abs|relu|nn\.ReLU)$",
            "--out",
            str(tmp_path),
            "--junit",
            str(tmp_path / "junit.xml"),
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {r["name"] for r in table.load(tmp_path / "parity.json")} == {"oneflow.abs", "oneflow.nn.ReLU"}
    assert (tmp_path / "parity.html").exists()
    assert table.load_header(tmp_path / "parity.json")["executed"] == 2
    assert "Before: the baseline" in (tmp_path / "diff.html").read_text()
    assert 'classname="graph" name="oneflow.abs"' in (tmp_path / "junit.xml").read_text()
