"""docs/environment.md has a row for every environment variable that is read, and no other rows."""

import ast
import re
from pathlib import Path

import pytest

import oneflow_autotest.config
from oneflow import _env

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([A-Z_0-9]+)` \|", PAGE, re.M)
# Files that read variables outside the tables, and why.
OTHER_READERS = {
    "oneflow_compat/_env.py": "the reader",
    "autotest/config.py": "the reader of oneflow_autotest",
    "oneflow_compat/support/env_var_util.py": "OneFlow's functions, which take a variable's name",
    "oneflow_compat/mock_torch/__main__.py": "extends PYTHONPATH for child processes",
    "oneflow_compat/test_utils/throttle.py": "sets a variable of child processes",
    "oneflow_compat/_graph/compile/background.py": "sets variables of child processes",
    "oneflow_compat/_graph/compile/memory.py": "MALLOC_..._THRESHOLD_, of any name",
    "oneflow_compat/_graph/compile/program_cache/environment.py": "compares inductor's own variables",
    "oneflow_compat/_graph/compile/program_cache/library.py": "hands an address to torch's library",
}


def readers(folder):
    """Yield the files below a folder that name os.environ or os.getenv in code."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if attributes & {"environ", "getenv", "environb"}:
            yield path.relative_to(ROOT).as_posix()


def test_only_two_files_read_the_environment():
    assert {*readers("oneflow_compat"), *readers("autotest")} == set(OTHER_READERS)


def test_the_build_reads_no_variable_without_a_row():
    sources = [ROOT / "setup.py", ROOT / "csrc" / "build.py", *(ROOT / "csrc").rglob("*.cpp")]
    read = {
        name
        for path in sources
        for name in re.findall(
            r"(?:environ\.get|environ|getenv)[(\[]\"([A-Z_0-9]+)\"", path.read_text(encoding="utf-8")
        )
    }
    assert {"ONEFLOW_BUILD_EXT", "MAX_JOBS", "ATEN_CPU_CAPABILITY"} <= read <= set(ROWS)


@pytest.mark.parametrize("variables", [_env.VARIABLES, oneflow_autotest.config.VARIABLES])
def test_every_variable_has_a_row(variables):
    assert set(variables) <= set(ROWS)


@pytest.mark.parametrize("name", sorted(_env.VARIABLES))
def test_every_row_is_read(name):
    sources = [*(ROOT / "oneflow_compat").rglob("*.py"), *(ROOT / "csrc").rglob("*.cpp")]
    assert any(
        f'"{name}"' in path.read_text(encoding="utf-8") for path in sources if path.name != "_env.py"
    ), f"nothing reads {name}: delete its row"
