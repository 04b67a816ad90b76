"""docs/examples/libraries: AutoTests of other libraries, where these are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from time_limits import seconds

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "libraries"


def run(name, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ONEFLOW_TEST") and k != "PYTEST_ADDOPTS"}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "oneflow_autotest.pytest_plugin",
            "-p",
            "no:cacheprovider",
            name,
        ],
        capture_output=True,
        text=True,
        timeout=seconds(300),
        cwd=folder,
        env=env | {"ONEFLOW_TEST_DATABASE": "none"},
    )


@pytest.mark.parametrize("library, module", [("numpy", "numpy"), ("jax", "jax"), ("mlx", "mlx.core")])
def test_the_tests_of_a_library_pass(library, module, tmp_path):
    pytest.importorskip(module, reason=f"{library} is not installed")
    ran = run(FOLDER / f"test_{library}.py", tmp_path)
    assert ran.returncode == 0 and "autotest: " in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow  # it compiles an extension
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_tests_of_an_extension_find_a_bug_in_it(tmp_path):
    source = (FOLDER / "test_extension.py").read_text(encoding="utf-8")
    for text, code in ((source, 0), (source.replace("return 2 * x * gradient", "return x * gradient"), 1)):
        (tmp_path / "test_extension.py").write_text(text, encoding="utf-8")
        ran = run("test_extension.py", tmp_path)
        assert ran.returncode == code, ran.stdout + ran.stderr
    assert "gradient: the gradient of" in ran.stdout
