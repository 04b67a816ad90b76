"""Findings: ranks, rules for calls, missing names that a program handles, and --fix."""

import pytest

from oneflow import scan
from oneflow._tables.differences import DIFFERENCES
from oneflow.scan.rules import RULES


def report(tmp_path, source, **options):
    file = tmp_path / "program.py"
    file.write_text(source)
    return scan.scan([file], **options)


def ids(tmp_path, source, rank):
    return [finding.id for finding in report(tmp_path, source).of_rank(rank)]


def test_every_rule_belongs_to_a_row_of_that_severity():
    for library, rules in RULES.items():
        for id in rules:
            assert DIFFERENCES[id]["severity"][library] in ("breaks", "changes numbers"), id


@pytest.mark.parametrize(
    "call, differs",
    [
        ("torch.optim.AdamW(p)", True),
        ("torch.optim.AdamW(p, weight_decay=0.1)", False),
        ("torch.optim.AdamW(p, 1, b, e, 0.1)", False),
        ("build(torch.optim.AdamW)", True),
        ("isinstance(p, torch.optim.AdamW)", False),
    ],
)
def test_a_row_about_a_default_is_about_calls_that_omit_the_argument(tmp_path, call, differs):
    assert ids(tmp_path, f"import torch\n{call}\n", "changes numbers") == ["adamw-default-wd"] * differs


def test_the_same_row_is_a_superset_for_a_oneflow_program(tmp_path):
    findings = report(tmp_path, "import oneflow as flow\nflow.optim.AdamW(p)\n")
    assert findings.exit_code == 0 and "adamw-default-wd" in [f.id for f in findings.of_rank("superset")]


def test_methods_count_where_the_value_is_certainly_a_tensor(tmp_path):
    start = "import oneflow as flow\n"
    assert ids(tmp_path, start + "x = flow.ones(2)\nx % 2\n", "changes numbers") == ["mod-sign"]
    assert ids(tmp_path, start + "def f(x): x % 2\n", "changes numbers") == []
    assert ids(tmp_path, start + "x = flow.ones(2)\nx ** 2\n", "changes numbers") == []


@pytest.mark.parametrize(
    "code, uses",
    [
        ("x = flow.ones(2).to_consistent(placement=p, sbp=b)", 1),
        ("model = flow.nn.Linear(2, 2)\nmodel = model.to_consistent(placement=p, sbp=b)", 1),
        ("def f(x): return x.to_consistent(sbp=b).to_local() if x.is_consistent else x", 2),
        ("class A:\n    def f(self): return self.parts[0].to_consistent(sbp=b)", 1),
    ],
)
def test_methods_that_only_oneflow_has_count_on_any_value(tmp_path, code, uses):
    findings = report(tmp_path, f"import oneflow as flow\n{code}\n").of_rank("cosmetic")
    assert {f.id: len(f.locations) for f in findings} == {"consistent-names": uses}
    assert report(tmp_path, f"import torch as flow\n{code}\n").of_rank("cosmetic") == []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    from oneflow import gone\nexcept ImportError:\n    gone = None",
        "try:\n    flow.gone()\nexcept AttributeError:\n    pass",
        "if hasattr(flow, 'gone'): flow.gone()",
        "flow.gone = 3\nflow.gone",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from oneflow import gone",
    ],
)
def test_a_missing_name_that_the_program_provides_for_is_no_finding(tmp_path, source):
    assert ids(tmp_path, "import oneflow as flow\n" + source, "breaks") == []


def test_torch_names_stay_torchs_in_a_file_that_uses_both(tmp_path):
    assert (
        report(
            tmp_path, "import oneflow as flow, torch\ntorch.optim.AdamW(p)\nflow.abs(torch.ones(1))\n"
        ).exit_code
        == 0
    )


def test_names_that_torch_lacks_are_one_finding(tmp_path):
    (finding,) = report(tmp_path, "import torch\ntorch.gone\ntorch.away()\n").findings
    assert finding.id == "not-in-torch" and finding.names == ["torch.away", "torch.gone"]


@pytest.mark.parametrize(
    "before, after",
    [
        ("torch.optim.AdamW(p)", "torch.optim.AdamW(p, weight_decay=0.01)"),
        (
            "torch.optim.AdamW(\n    p,\n    lr=1,\n)",
            "torch.optim.AdamW(\n    p,\n    lr=1,\n    weight_decay=0.01,\n)",
        ),
        ("torch.optim.AdamW((p), )  # é", "torch.optim.AdamW((p), weight_decay=0.01 )  # é"),
        ("'é'; torch.isclose(a, (b), ( 1e-3 ), 'é')", "'é'; torch.isclose(a, (b), rtol=( 1e-3 ), atol='é')"),
        ("torch.optim.SGD(p).zero_grad()", "torch.optim.SGD(p).zero_grad(set_to_none=True)"),
        ("torch.optim.AdamW(p, **more)", "torch.optim.AdamW(p, **more)"),
        (
            "torch.optim.AdamW(\n    p,  # one, two\n)",
            "torch.optim.AdamW(\n    p,  # one, two\n    weight_decay=0.01,\n)",
        ),
        (
            "torch.optim.AdamW(\n    (p)  # one\n)",
            "torch.optim.AdamW(\n    (p),  # one\n    weight_decay=0.01\n)",
        ),
    ],
)
def test_fix_writes_the_call_that_both_libraries_read_alike(tmp_path, before, after):
    report(tmp_path, f"import torch\n{before}\n", fix=True)
    assert (tmp_path / "program.py").read_text() == f"import torch\n{after}\n"


PROGRAM = """import torch

def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(5):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    close = torch.isclose(torch.tensor([1.0]), torch.tensor([1.001]), 1e-2, 0)
    return [*model.weight.flatten().tolist(), model.weight.grad is None, close.item()]
"""


def results(source, library):
    """Return what train() of a program returns after `import torch` became an import of `library`."""
    names = {}
    exec(source.replace("import torch", f"import {library} as torch", 1), names)
    return names["train"]()


def test_a_fixed_program_computes_the_same_in_both_libraries(tmp_path):
    assert results(PROGRAM, "torch") != results(PROGRAM, "oneflow")
    findings = report(tmp_path, PROGRAM, fix=True)
    fixed = (tmp_path / "program.py").read_text()
    assert (findings.fixed_calls, findings.exit_code) == (3, 0)
    assert results(fixed, "torch") == results(fixed, "oneflow") == results(PROGRAM, "torch")


def test_fix_keeps_encoding_line_ends_and_mode(tmp_path):
    file = tmp_path / "program.py"
    file.write_bytes(b"# coding: latin-1\r\nimport torch\r\ns = '\xe9'; torch.optim.Adagrad(p)\r\n")
    file.chmod(0o640)
    findings = scan.scan([file], fix=True)
    assert (
        file.read_bytes()
        == b"# coding: latin-1\r\nimport torch\r\ns = '\xe9'; torch.optim.Adagrad(p, lr=0.01)\r\n"
    )
    assert file.stat().st_mode & 0o777 == 0o640 and (findings.fixed_calls, findings.exit_code) == (1, 0)


def test_fix_of_a_oneflow_program(tmp_path):
    report(tmp_path, "import oneflow as flow\nflow.sum(x, 1, 1)\n", fix=True)
    assert "flow.sum(x, 1, keepdim=True)" in (tmp_path / "program.py").read_text()


def test_a_missing_module_is_named_as_oneflows():
    """oneflow has torch's modules, whose own errors would name torch."""
    from oneflow.scan.lookup import find

    assert find("oneflow.testing.modules").missing == "module 'oneflow.testing' has no attribute 'modules'"
    assert "'oneflow.nn'" in find("oneflow.nn.nothing").missing
