"""The parity suite finds planted bugs, covers every documented name, and its baseline fails on a regression."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from planted import Library, graph_class
from time_limits import seconds
from written import LEFT_OUT, WRITTEN

import oneflow
from oneflow_autotest.pair import Pair
from oneflow_autotest.parity import page, samples, table
from oneflow_autotest.parity.checks import Checker
from oneflow_autotest.summary import Progress, elapsed

HERE = Path(__file__).parent
NAMES = [n[0] for n in json.loads((HERE / "names.json").read_text())]


def row_of(name, **planted):
    library = Library(**planted) if planted else oneflow
    row = table.new_row(f"oneflow.{name}", "oneflow")
    reference = candidate = None
    for part in name.split("."):
        reference, candidate = getattr(reference or torch, part), getattr(candidate or library, part)
    checker = Checker(Pair(torch, library, ("torch", "here")))
    info = samples.modules().get(name.removeprefix("nn."))
    if info is not None:
        checker.module(row, info, reference, candidate)
    else:
        checker.function(row, samples.operators()[name], reference, candidate)
    return row


def statuses(row):
    return {c: table.status(row, c) for c in table.COLUMNS if c not in ("cuda", "cpu")}


@pytest.fixture(scope="module", autouse=True)
def torch_has_its_table():
    if not samples.operators():
        pytest.skip("this torch has no table of operators in torch.testing._internal")


def test_a_faithful_function_passes_everywhere():
    assert statuses(row_of("exp")) == {
        "identity": "same",
        "eager": "pass",
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
        "((torch, torch.exp), (flow, flow.exp),)" in row["cells"]["eager"]["script"]
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


def test_a_regression_fails_and_an_improvement_does_not():
    good, bad = row_of("exp"), row_of("exp", exp=lambda x: x.exp() * 1.01)
    worse, better = table.compare([bad], table.baseline_of([good]))
    assert "oneflow.exp, eager: pass -> fail" in worse
    worse, better = table.compare([good], table.baseline_of([bad]))
    assert not worse and "oneflow.exp, eager: fail -> pass" in better
    assert table.compare([], table.baseline_of([good]))[0] == ["oneflow.exp: no longer in the matrix"]


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
    details = json.loads(re.search(r"const details = (.*), columns =", text)[1])
    assert details["oneflow.exp"]["scripts"]["gradient"].count("backward(out)") == 2


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


SAMPLE = (
    "oneflow.add",
    "oneflow.Tensor.add_",
    "oneflow.Tensor.masked_fill",
    "oneflow.cat",
    "oneflow.nn.Linear",
    "oneflow.nn.BatchNorm1d",
    "oneflow.optim.SGD",
    "oneflow.slice_update",
    "oneflow.nn.functional.cross_entropy",
    "oneflow.randn",
    "oneflow.linalg.norm",
    "oneflow.nn.utils.clip_grad_norm_",
    "oneflow.arange",
    "oneflow.nn.functional.interpolate",
)


def test_snippets_run_as_they_are(monkeypatch, tmp_path):
    """In the root of the repository, in one child process; snippets of recorded calls included."""
    monkeypatch.setattr(sys, "path", sys.path.copy())  # run.py adds its folder
    from run import Suite, golden

    suite = Suite()
    rows = [suite.row(name, "function") for name in SAMPLE]
    golden(rows)
    scripts = {
        f"{row['name']} [{column}]": script for row in rows for column, script in snippets_of(row).items()
    }
    assert len(scripts) > 30 and any("replay.py" in s for s in scripts.values())
    (tmp_path / "scripts.json").write_text(json.dumps(scripts))
    runner = (
        "import contextlib, io, json, sys\nfor name, source in json.load(open(sys.argv[1])).items():\n    try:\n"
        "        with contextlib.redirect_stdout(io.StringIO()):\n            exec(compile(source, name, 'exec'), {'__name__': '__main__'})\n"
        "    except SystemExit:\n        pass\n    except Exception as e:\n        print(name, repr(e))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", runner, str(tmp_path / "scripts.json")],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=seconds(300),
    )
    assert ran.returncode == 0 and not ran.stdout, ran.stdout + ran.stderr[-2000:]


def snippets_of(row):
    """{column: script} of the cells that have a result."""
    scripts = {
        c: cell.get("script") or row["scripts"].get(page.MEANINGS[c][2])
        for c, cell in row["cells"].items()
        if cell["status"] not in ("none", "refused")
    }
    return {c: s for c, s in scripts.items() if s}


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
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {r["name"] for r in table.load(tmp_path / "parity.json")} == {"oneflow.abs", "oneflow.nn.ReLU"}
    assert (tmp_path / "parity.html").exists()
