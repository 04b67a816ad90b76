"""docs/examples/libraries: AutoTests of other libraries, where these are installed."""

from pathlib import Path

import pytest
from run_pytest import run_pytest

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "libraries"


@pytest.mark.parametrize("library, module", [("numpy", "numpy"), ("jax", "jax"), ("mlx", "mlx.core")])
def test_the_tests_of_a_library_pass(library, module, tmp_path):
    pytest.importorskip(module, reason=f"{library} is not installed")
    ran = run_pytest(tmp_path, FOLDER / f"test_{library}.py")
    assert ran.returncode == 0 and "autotest: " in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.slow  # it compiles an extension
@pytest.mark.compiler
def test_the_tests_of_an_extension_find_a_bug_in_it(tmp_path):
    source = (FOLDER / "test_extension.py").read_text(encoding="utf-8")
    for text, code in ((source, 0), (source.replace("return 2 * x * gradient", "return x * gradient"), 1)):
        (tmp_path / "test_extension.py").write_text(text, encoding="utf-8")
        ran = run_pytest(tmp_path, "test_extension.py")
        assert ran.returncode == code, ran.stdout + ran.stderr
    assert "gradient: the gradient of" in ran.stdout
