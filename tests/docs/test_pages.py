"""The Python blocks of each documentation page run, as one program in an empty folder."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from markdown_blocks import python_blocks, run_page
from time_limits import seconds

import oneflow as flow

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.parent.name != "api"
    and any(not block.reason for block in python_blocks(path.read_text(encoding="utf-8")))
)
REQUIREMENTS = {"files-and-data.md": ["lmdb"]}


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """An empty working folder; the interpreter's settings are restored afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "aten")
    monkeypatch.setenv("ONEFLOW_TEST_DATABASE", "none")
    monkeypatch.setenv("ONEFLOW_TEST_SHRINK_SECONDS", "2")
    modules = dict(sys.modules)
    yield tmp_path
    flow.set_dialect("oneflow")
    for name in set(sys.modules) - set(modules):
        if name.startswith("page_") or (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_blocks_of_page_run(page, empty_folder):
    for module in REQUIREMENTS.get(page.name, ()):
        pytest.importorskip(module)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run_page(page)
    for script in Path("autotest_failures").glob("*.py"):
        ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert "AssertionError" in ran.stderr, f"{page} makes {script}: {ran.stderr}"
    assert [
        str(w.message) for w in shown if "the program does not follow what build() reads" in str(w.message)
    ] == []


@pytest.mark.slow
def test_distributed_tutorial_runs_on_two_processes(empty_folder):
    """The program that the page says to save as train.py, started as the page says."""
    (program,) = python_blocks((DOCS / "tutorials" / "distributed.md").read_text(encoding="utf-8"))
    Path("train.py").write_text(program.source, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "oneflow.distributed.launch", "--nproc_per_node", "2", "train.py"],
        capture_output=True,
        text=True,
        timeout=seconds(300),
    )
    assert run.returncode == 0 and "batch 64, losses" in run.stdout, run.stderr[-2000:]


def test_failing_block_fails_with_the_line_of_the_page(tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text(
        "# Wrong\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 1\nassert x == 2\n```\n"
    )
    with pytest.raises(AssertionError) as error:
        run_page(page, modules={})
    assert error.traceback[-1].lineno + 1 == 11


def test_marked_block_is_not_run(tmp_path):
    page = tmp_path / "excerpt.md"
    page.write_text("<!-- not run: an excerpt -->\n```python\nraise SystemError\n```\n")
    run_page(page, modules={})
    assert [block.reason for block in python_blocks(page.read_text())] == ["an excerpt"]


def test_marker_needs_a_reason(tmp_path):
    page = tmp_path / "excerpt.md"
    page.write_text("<!-- not run: -->\n```python\nraise SystemError\n```\n")
    with pytest.raises(SystemError):
        run_page(page, modules={})


def test_failing_unittest_of_page_fails(tmp_path):
    page = tmp_path / "failing.md"
    page.write_text(
        "```python\nimport unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n"
        "        self.fail('planted')\n```\n"
    )
    with pytest.raises(AssertionError, match="planted"):
        run_page(page, modules={})
