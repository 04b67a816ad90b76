"""Editors and type checkers know the public names.

test_stubs_* compare the committed stubs with what tests/tools/make_stubs.py writes. test_pyright_* run
Pyright, which fetches its own program on the first run: `make typecheck`.
"""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from time_limits import seconds

from oneflow._bind import function_rows

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from markdown_blocks import python_blocks

# A stub cannot add methods to torch's Module, so `model.to_global(...)` and `model = graph.model.to(...)` are
# errors to Pyright. python-state.md assigns a tensor to an attribute that held a float.
PAGES_WITH_TYPE_ERRORS = {
    "global.md",
    "distributed.md",
    "from-oneflow.md",
    "save-load-export.md",
    "python-state.md",
}


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="the committed stubs repeat types of torch 2.13"
)
def test_stubs_are_current():
    """In a separate process, because other tests change the dialect and the attributes of modules."""
    command = [sys.executable, "-W", "ignore", ROOT / "tests" / "tools" / "make_stubs.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"run: make stubs\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("space", ["oneflow", "oneflow.nn", "oneflow.nn.functional", "oneflow.linalg"])
def test_stub_declares_every_function_row(space):
    folder = ROOT.joinpath("oneflow_compat", *space.split(".")[1:])
    stub = folder / "__init__.pyi" if folder.is_dir() else folder.with_suffix(".pyi")
    declared = set()
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            declared.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            declared.add(node.target.id)
    torchs_own = {"device", "Generator"}  # torch's classes, which our constructors return
    assert set(function_rows(space)) - torchs_own <= declared


@pytest.fixture(scope="module")
def pyright(tmp_path_factory):
    """Run Pyright on the files of a folder; return its report."""
    folder = tmp_path_factory.mktemp("typing")
    for name, source in (("oneflow", "oneflow_compat"), ("oneflow_autotest", "autotest")):
        (folder / name).symlink_to(ROOT / source)

    def check(source):
        checked = folder / source.name
        shutil.copytree(source, checked)
        settings = folder / "pyrightconfig.json"
        settings.write_text(json.dumps({"include": [source.name], "extraPaths": ["."]}))
        command = [
            sys.executable,
            "-m",
            "pyright",
            "--outputjson",
            "-p",
            str(settings),
            "--pythonpath",
            sys.executable,
        ]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, timeout=seconds(600)).stdout
        )

    return check


@pytest.mark.network
def test_pyright_accepts_the_examples(pyright):
    report = pyright(ROOT / "docs" / "examples")
    assert report["summary"]["filesAnalyzed"] > 5
    # Job functions annotate their arguments with calls, Numpy.Placeholder((2, 3)), which no type checker
    # accepts.
    errors = [
        f"{d['file']}: {d['message']}"
        for d in report["generalDiagnostics"]
        if d["severity"] == "error" and "legacy" not in d["file"]
    ]
    assert errors == []


@pytest.mark.network
def test_pyright_accepts_the_programs_of_the_documentation(pyright, tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")):
        blocks = [block for block in python_blocks(page.read_text(encoding="utf-8")) if not block.reason]
        if blocks and page.parent.name != "api" and page.name not in PAGES_WITH_TYPE_ERRORS:
            (folder / f"{page.parent.name}_{page.stem}.py").write_text(
                "\n".join(block.source for block in blocks), encoding="utf-8"
            )
    report = pyright(folder)
    assert report["summary"]["filesAnalyzed"] > 15
    assert [
        f"{d['file']}: {d['message']}" for d in report["generalDiagnostics"] if d["severity"] == "error"
    ] == []


@pytest.mark.network
def test_pyright_knows_the_names_that_programs_use(pyright):
    diagnostics = pyright(ROOT / "tests" / "typing")["generalDiagnostics"]
    diagnostics = [d for d in diagnostics if d["file"].endswith("names.py")]
    assert sum(d["severity"] == "information" for d in diagnostics) > 100
    assert [d["message"] for d in diagnostics if d["severity"] == "error" or "Unknown" in d["message"]] == []
