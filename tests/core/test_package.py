"""Building, installing and the command line of the package."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import oneflow
from oneflow import _installation
from oneflow.__main__ import main as command_line

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the tracked files, so that a build leaves no files in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for name in filter(None, files):
        if name.startswith(("tests/", "docs/")) or not (ROOT / name).exists():
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


def build(source, out, *kind):
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *kind, "--dist-dir", str(out)],
        cwd=source,
        capture_output=True,
        text=True,
        env={**os.environ, "ONEFLOW_BUILD_EXT": "0"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return next(out.iterdir())


def build_module():
    """Return csrc/build.py as a module."""
    spec = importlib.util.spec_from_file_location("csrc_build", ROOT / "csrc" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wheel_imports_in_a_fresh_environment(source, tmp_path):
    wheel = build(source, tmp_path / "dist", "bdist_wheel")
    names = zipfile.ZipFile(wheel).namelist()
    assert "oneflow/__init__.py" in names and "oneflow_autotest/__init__.py" in names
    assert not [n for n in names if n.startswith(("oneflow_compat/", "tests/", "autotest/"))]
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "-q",
            "--python",
            str(python),
            "install",
            "--no-index",
            "--no-deps",
            str(wheel),
        ],
        check=True,
    )
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    requirements = {str(Path(__import__(name).__file__).parents[1]) for name in ("torch", "numpy")}
    code = f"""
import sys
sys.path += {sorted(requirements)!r}
import oneflow, oneflow_autotest, oneflow.mock_torch
print(oneflow.__file__, oneflow_autotest.__file__)
print(oneflow.nn.functional.relu(oneflow.ones(2)).sum().item())
"""
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert out.stdout.count(site) == 2 and "2.0" in out.stdout
    assert (Path(site) / "oneflow/mock_torch/startup/sitecustomize.py").exists()


def test_an_isolated_build_finds_the_torch_of_the_environment():
    """pip builds in an isolated environment. It once lacked torch there, and the kernels were left out."""
    code = f"""
import importlib.util, pathlib, sys
there = str(pathlib.Path(importlib.util.find_spec("torch").origin).parents[1])
sys.path = [{str(ROOT / "csrc")!r}, *(p for p in sys.path if p != there)]
assert importlib.util.find_spec("torch") is None
import build
print(build.environments_torch().__version__)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "csrc")
    import torch

    assert out.stdout.strip() == torch.__version__, out.stderr


def test_a_build_without_torch_has_the_guards_and_names_the_remedy(tmp_path, monkeypatch, capsys):
    """As in pip's isolated build for an environment that has no torch yet."""
    from setuptools import Distribution

    module = build_module()

    def no_torch():
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr(module, "environments_torch", no_torch)
    monkeypatch.setattr(module, "build_guards", lambda output: output.write_text("library"))
    monkeypatch.delenv("ONEFLOW_BUILD_EXT", raising=False)
    command = module.command_class()(Distribution())
    command.build_lib, command.build_temp, command.inplace = str(tmp_path), str(tmp_path / "work"), False
    command.run()
    assert (tmp_path / "oneflow" / module.GUARDS).exists()
    assert "No module named 'torch'; install torch before this package" in capsys.readouterr().err
    monkeypatch.setenv("ONEFLOW_BUILD_EXT", "require")
    with pytest.raises(ModuleNotFoundError):
        command.run()


@pytest.mark.compiler
def test_a_build_with_cuda_kernels_says_so_and_names_the_switch(tmp_path, monkeypatch, capsys):
    """nvcc takes minutes, and a build is silent otherwise until its first file is compiled."""
    module = build_module()
    monkeypatch.setattr(module, "_nvcc", lambda: "/cuda/bin/nvcc")
    monkeypatch.setattr(module, "_run", lambda label, command, steps: steps.append(label))
    monkeypatch.setattr(module, "_link", lambda *arguments: None)
    monkeypatch.setattr(
        module, "environments_torch", lambda: SimpleNamespace(version=SimpleNamespace(cuda="13.0"))
    )

    def build_output(switch):
        monkeypatch.setenv("ONEFLOW_BUILD_EXT", switch)
        module.build(tmp_path / "_ext.so", tmp_path / "work")
        return capsys.readouterr().err

    assert build_output("cpu") == ""
    (line,) = build_output("1").splitlines()
    assert "CUDA kernels with /cuda/bin/nvcc" in line and "ONEFLOW_BUILD_EXT=cpu" in line


def test_the_source_distribution_holds_what_a_build_needs(source, tmp_path):
    import tarfile

    sdist = build(source, tmp_path / "dist", "sdist")
    names = {n.partition("/")[2] for n in tarfile.open(sdist).getnames()}
    assert {
        "setup.py",
        "pyproject.toml",
        "README.md",
        "oneflow_compat/__init__.py",
        "autotest/__init__.py",
        "LICENSE",
        "oneflow_compat/_tables/differences/__init__.py",
    } <= names


def test_doctor_lists_what_is_there():
    out = subprocess.run(
        [sys.executable, "-m", "oneflow", "--doctor"], capture_output=True, text=True, cwd="/"
    )
    assert out.returncode == 0, out.stderr
    import torch

    lines = {line[4:22].strip(): line for line in out.stdout.splitlines()}
    assert torch.__version__ in lines["torch"] and lines["torch"].startswith("ok")
    assert {
        "python",
        "devices",
        "C++ compiler",
        "custom operators",
        "nn.Graph",
        "dialect",
        "hypothesis",
    } <= set(lines)


def test_the_launcher_takes_oneflows_options_and_leaves_the_scripts_alone():
    from oneflow.distributed.launch import parser

    args = parser().parse_args(
        ["--nproc_per_node", "2", "--logdir=x", "--redirect_stdout_and_stderr", "train.py", "--logdir", "y"]
    )
    assert (args.nproc_per_node, args.log_dir, args.redirects) == ("2", "x", "3")
    assert (args.training_script, args.training_script_args) == ("train.py", ["--logdir", "y"])


def test_version_and_commit_are_texts():
    import oneflow

    assert oneflow.version.__version__ == "1.0.0" and isinstance(oneflow.__git_commit__, str)


def test_the_wheel_has_its_license_and_types_and_no_link_into_the_repository(source, tmp_path):
    archive = zipfile.ZipFile(build(source, tmp_path / "dist", "bdist_wheel"))
    names = archive.namelist()
    assert {"oneflow/py.typed", "oneflow/__init__.pyi", "oneflow_autotest/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "oneflow/_tables/differences/__init__.py" in names  # the errors point to its rows
    metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "A training step as one program" in metadata
    assert [
        target for target in re.findall(r"\]\(([^)]+)\)", metadata) if not target.startswith("https://")
    ] == []


def test_a_wheel_without_kernels_is_for_every_platform(source, tmp_path):
    assert build(source, tmp_path / "dist", "bdist_wheel").name.endswith("-py3-none-any.whl")


def test_version_is_printed():
    out = subprocess.run(
        [sys.executable, "-m", "oneflow", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert out.startswith(f"oneflow-compat {oneflow.__version__} (torch ")


def test_a_difference_is_explained_by_its_id_and_by_a_name(capsys):
    assert command_line(["--difference", "bn-batch1"]) == 0
    by_id = capsys.readouterr().out
    assert by_id.startswith("bn-batch1\n") and by_id.count("OneFlow:") == 1
    assert command_line(["--difference", "oneflow.nn.BatchNorm1d"]) == 0
    assert by_id in capsys.readouterr().out
    assert command_line(["--difference", "no-such-row"]) == 1


def test_a_reader_that_ends_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "oneflow", "--difference", "o"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 1 and done.stderr == ""


def test_another_distribution_of_oneflow_in_the_same_folder_is_named(tmp_path):
    for name, file in (
        ("oneflow_compat-1.0.0", "oneflow/__init__.py"),
        ("oneflow-0.9.0", "oneflow/__init__.py"),
        ("oneflow_tools-2.0", "oneflow_tools.py"),
    ):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        (folder / "RECORD").write_text(f"{file},sha256=0,1\n")
    assert _installation.conflicting_distributions(str(tmp_path)) == ["oneflow 0.9.0"]
    assert "pip uninstall oneflow oneflow-compat" in _installation.conflict_message(["oneflow 0.9.0"])


def test_a_cuda_compiler_without_a_gpu_is_no_notice():
    """torch.utils.cpp_extension logs it when inductor imports it; its other messages stay."""
    code = """
import oneflow
from torch.utils import cpp_extension
assert cpp_extension._find_cuda_home() == "/usr"
cpp_extension.logger.warning("another message")
"""
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_HOME": "/usr", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert out.returncode == 0, out.stderr
    assert "another message" in out.stderr and "CUDA runtime" not in out.stderr
