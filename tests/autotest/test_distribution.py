"""The harness as a distribution of its own, without oneflow."""

import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TEST = """
import sys
import types

import torch as reference
from oneflow_autotest import bind

mylib = types.SimpleNamespace(Tensor=reference.Tensor, tensor=reference.tensor, relu=lambda x: x * (x > 0))
api = bind(reference, mylib, names=("torch", "mylib"), level="other implementation")


@api.autotest(n=5, check_graph=False)
def test_relu(test_case):
    return api.torch.relu(api.random_tensor(ndim=2))


def test_oneflow_is_not_there(test_case):
    test_case.assertNotIn("oneflow", sys.modules)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, from a copy of the folder, so that no file of the build stays in it."""
    if not (ROOT / "autotest" / "pyproject.toml").exists():
        pytest.skip("the source tree is not here")
    folder = tmp_path_factory.mktemp("distribution")
    shutil.copytree(ROOT / "autotest", folder / "autotest", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('..')"]
    built = subprocess.run(command, cwd=folder / "autotest", capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_every_file_of_the_harness(wheel):
    names = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("oneflow_autotest/")}
    sources = {
        f"oneflow_autotest/{path.relative_to(ROOT / 'autotest').as_posix()}"
        for path in (ROOT / "autotest").rglob("*")
        if path.suffix in (".py", ".jinja", ".typed") and "build" not in path.parts
    }
    assert names == sources | {"oneflow_autotest/py.typed"}


def test_it_has_the_version_of_oneflow_compat(wheel):
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "oneflow_compat" / "version.py").read_text())
    assert wheel.name.split("-")[1] == version[1]


def test_it_runs_without_oneflow(wheel, tmp_path):
    """In a process that finds the wheel first, and no oneflow."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "installed" / "oneflow.py").write_text("raise ImportError('oneflow is not installed')\n")
    (tmp_path / "test_mine.py").write_text(TEST)
    code = (
        "import sys; sys.path.insert(0, 'installed'); import pytest;"
        "sys.exit(pytest.main(['-q', '-p', 'oneflow_autotest.pytest_plugin', 'test_mine.py']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_its_requirements_are_those_of_oneflow_compats_extra(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    needed = set(re.findall(r"^Requires-Dist: (\S+)", archive.read(name).decode(), re.M))
    whole = metadata.requires("oneflow-compat") or []
    of_extra = {r.partition(";")[0].strip() for r in whole if "extra" not in r or 'extra == "autotest"' in r}
    assert needed == {r.replace(" ", "") for r in of_extra}
