"""The command: exit codes, its output, and files that cannot be read."""

import json
import os
import subprocess
import sys

import pytest

from oneflow import scan
from oneflow.scan.__main__ import main

BROKEN = {
    "syntax": b"def (:\n",
    "nul": b"import torch\0\n",
    "signs": b"x = " + b"-" * 200_000 + b"1\n",
    "parentheses": b"x = " + b"(" * 100_000,
    "attributes": b"import torch\ntorch" + b".a" * 50_000,
    "sum": b"x = " + b"1 + " * 100_000 + b"1\n",
    "codec": b"# coding: no-such-codec\n",
    "encoding": b"s = '\xe9'\n",
    "huge": b"#" * (9 << 20),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_read_is_reported_and_skipped(tmp_path, content):
    (tmp_path / "a_broken.py").write_bytes(content)
    (tmp_path / "fine.py").write_text("import torch\ntorch.gone\n")
    report = scan.scan([tmp_path])
    assert any(place.file.endswith("fine.py") for finding in report.findings for place in finding.locations)
    if report.files == 2 and content is BROKEN["attributes"]:  # Python 3.14 can read this one
        return
    assert report.files == 1 and len(report.findings) == 1
    (skipped,) = report.skipped
    assert skipped.file.endswith("a_broken.py") and skipped.reason


def test_links_pipes_and_folders_that_are_no_files(tmp_path):
    os.symlink("loop.py", tmp_path / "loop.py")
    os.symlink(".", tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "package.py").mkdir()
    (tmp_path / "fine.py").write_text("")
    report = scan.scan([tmp_path])
    assert report.files == 1 and sorted(os.path.basename(s.file) for s in report.skipped) == [
        "loop.py",
        "pipe.py",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nx = torch.ones(2)\n" + "x = x.view(1)\n" * 5000,
        "import torch\nimport oneflow\nx0 = torch if a else oneflow\n"
        + "".join(f"x{i + 1} = x{i}.a if a else x{i}.b\n" for i in range(60))
        + "x60.q\n",
        "import torch\n" + "".join(f"a{i} = a{i + 1}\n" for i in range(5000)) + "a5000 = torch\na0.abs\n",
    ],
    ids=["rebound", "alternatives", "aliases"],
)
def test_names_that_grow_do_not_take_time(tmp_path, source):
    (tmp_path / "program.py").write_text(source)
    assert scan.scan([tmp_path]).files == 1


@pytest.mark.parametrize(
    "source, code",
    [
        ("import torch\ntorch.abs(1)\n", 0),
        ("import oneflow as flow\nflow.gone\n", 1),
        ("import oneflow as flow\nflow.randn(2)\n", 3),
        ("def (:\n", 2),
    ],
)
def test_exit_code(tmp_path, source, code, capsys):
    (tmp_path / "program.py").write_text(source)
    assert main([str(tmp_path)]) == code


def test_a_path_that_does_not_exist(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_summary_fits_on_a_screen_and_hides_the_superset(tmp_path, capsys):
    (tmp_path / "program.py").write_text(
        "import oneflow as flow\n"
        + "".join(f"flow.gone{i}\n" for i in range(100))
        + "flow.optim.Adam(p)\nflow.randn(1)\n"
    )
    assert main([str(tmp_path)]) == 1
    summary = capsys.readouterr().out
    assert len(summary.splitlines()) <= 24 and "superset" not in summary and "breaks: 100 findings" in summary
    assert main(["--all", str(tmp_path)]) == 1
    full = capsys.readouterr().out
    assert "superset" in full and f"{tmp_path / 'program.py'}:101:" in full


def test_json_has_every_location(tmp_path, capsys):
    (tmp_path / "program.py").write_text("import torch\ntorch.optim.AdamW(p)\ntorch.optim.AdamW(p)\n")
    assert main(["--json", str(tmp_path)]) == 3
    findings = json.loads(capsys.readouterr().out)
    row = next(finding for finding in findings["findings"] if finding["id"] == "adamw-default-wd")
    assert row["rank"] == "changes numbers" and row["names"] == ["torch.optim.AdamW"] and row["here"]
    assert [(at["line"], at["is_fixable"]) for at in row["locations"]] == [(2, True), (3, True)]


def test_the_module_is_a_command(tmp_path):
    (tmp_path / "program.py").write_text("import torch\ntorch.abs(1)\n")
    done = subprocess.run(
        [sys.executable, "-m", "oneflow.scan", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "1 file, 1 name\n" and done.stderr == ""


def test_a_file_is_read_in_its_own_encoding(tmp_path):
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfimport torch\ntorch.gone(1)\n")
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nimport torch\ns = '\xe9'; torch.away(1)\n")
    assert scan.scan([tmp_path]).findings[0].names == ["torch.away", "torch.gone"]
