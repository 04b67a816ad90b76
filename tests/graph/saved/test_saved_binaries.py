"""Saved graphs with machine code: graph.save(path, compiled=True) and load_graph(path,
trust_binaries=True).
"""

import json
import os
import subprocess
import sys

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn
from oneflow._graph.compile.inductor import compiler

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]


class Step(nn.Graph):
    def __init__(self, backend="inductor"):
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9))
        self.config.set_backend(backend)

    def build(self, x):
        loss = (self.model(x) + torch.tensor([0.5])).square().mean()
        loss.backward()
        return loss


@pytest.fixture
def saved(tmp_path):
    """(folder of a saved graph, an argument, the losses that come next)"""
    step, x = Step(), torch.linspace(-1, 1, 12).view(3, 4)
    step(x), step(x)
    step.save(tmp_path / "step", compiled=True)
    return tmp_path / "step", x, [step(x).item() for _ in range(3)]


@pytest.fixture
def no_compiler(monkeypatch):
    def compile(*args):
        raise AssertionError("nothing may be compiled")

    monkeypatch.setattr(compiler, "_compile", compile)
    monkeypatch.setattr("oneflow._graph.compile.has_compiler", lambda: False)
    monkeypatch.delenv("ONEFLOW_GRAPH_BACKEND")


def alter(folder, **environment):
    """Let the binaries of a saved graph claim another environment."""
    (path,) = (folder / "compiled").glob("*.json")
    record = json.loads(path.read_text())
    record["environment"].update(environment)
    path.write_text(json.dumps({**record, "key": "0" * 64}))
    path.rename(path.with_name("0" * 64 + ".json"))


def test_a_trusted_binary_runs_without_a_compiler(saved, no_compiler, recwarn):
    folder, x, losses = saved
    graph = flow.load_graph(folder, trust_binaries=True)
    assert [graph(x).item() for _ in range(3)] == losses, "the same machine code computes the same bits"
    assert not recwarn.list


def test_a_binary_is_not_loaded_without_the_flag(saved, monkeypatch, capfd):
    folder, x, losses = saved
    monkeypatch.setattr("oneflow._graph.compile.program_cache.load_library", None)
    graph = flow.load_graph(folder, backend="aten")
    assert "pass trust_binaries=True" in capfd.readouterr().err
    assert [graph(x).item() for _ in range(3)] == pytest.approx(losses, rel=1e-6)  # aten rounds otherwise


def test_the_backend_aten_wins_over_binaries(saved, monkeypatch):
    folder, x, losses = saved
    monkeypatch.setattr("oneflow._graph.compile.program_cache.load_library", None)
    assert flow.load_graph(folder, backend="aten", trust_binaries=True)(x).item() == pytest.approx(
        losses[0], rel=1e-6
    )


@pytest.mark.parametrize(
    "name, value",
    [("torch", "2.0.0"), ("instructions", "AVX9"), ("python", ".cpython-399.so"), ("oneflow", "0.1")],
)
def test_a_binary_of_another_environment_is_told_and_not_run(saved, no_compiler, name, value):
    folder, x, losses = saved
    alter(folder, **{name: value})
    graph = flow.load_graph(folder, trust_binaries=True)
    with pytest.warns(
        UserWarning,
        match=f"no binary in .* fits .{name}: saved with {value}, here .*; the aten backend runs it",
    ):
        assert graph(x).item() == pytest.approx(losses[0], rel=1e-6)


def test_another_number_of_threads_still_fits(saved, no_compiler, recwarn):
    folder, x, losses = saved
    alter(folder, threads=77, processor="another name")
    assert flow.load_graph(folder, trust_binaries=True)(x).item() == losses[0] and not recwarn.list


def test_a_damaged_library_is_told_and_not_run(saved, no_compiler):
    folder, x, losses = saved
    (library,) = (folder / "compiled").glob("*.so")
    library.write_bytes(library.read_bytes()[:-1] + b"\x01")
    graph = flow.load_graph(folder, trust_binaries=True)
    with pytest.warns(UserWarning, match="no binary in .* fits"):
        assert graph(x).item() == pytest.approx(losses[0], rel=1e-6)


def test_every_saved_program_has_its_binary(tmp_path, no_compiler, monkeypatch):
    monkeypatch.undo()

    class Double(nn.Graph):
        def build(self, x):
            return (x * 2).sin()

    graph = Double()
    graph.config.set_backend("auto")  # not compiled yet when it is saved
    for size in (2, 3):
        graph(torch.ones(size))
    graph.save(tmp_path / "double", compiled=True)
    assert len(list((tmp_path / "double" / "compiled").glob("*.json"))) == 2
    loaded = flow.load_graph(tmp_path / "double", trust_binaries=True, backend="inductor")
    monkeypatch.setattr(compiler, "_compile", None)
    for size in (2, 3):
        assert torch.allclose(loaded(torch.ones(size)), (torch.ones(size) * 2).sin())


def test_a_later_save_without_binaries_removes_them(saved):
    folder, _, _ = saved
    loaded = flow.load_graph(folder, backend="aten")
    loaded.save(folder)
    assert not (folder / "compiled").exists()


def test_save_without_a_compiler_names_the_remedy_and_writes_nothing(tmp_path, monkeypatch):
    step, x = Step("auto"), torch.ones(3, 4)
    step(x), step(x)
    monkeypatch.setattr("oneflow._graph.saved.binaries.has_compiler", lambda: False)
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "no programs"))
    with pytest.raises(RuntimeError, match="compiled=True of graph Step_.* needs a C.. compiler.*set CXX"):
        step.save(tmp_path / "step", compiled=True)
    assert not (tmp_path / "step").exists()


def test_a_graph_set_to_aten_has_no_binary_to_save(tmp_path):
    step = Step("aten")
    step(torch.ones(3, 4)), step(torch.ones(3, 4))
    with pytest.raises(ValueError, match="compiled=True of graph Step_.*'aten'; set_backend"):
        step.save(tmp_path / "step", compiled=True)
    assert not (tmp_path / "step").exists()


SERVER = """
import sys, torch, oneflow as flow
graph = flow.load_graph(sys.argv[1], trust_binaries=True)
print(graph(torch.linspace(-1, 1, 12).view(3, 4)).item(), "torch._inductor.compile_fx" in sys.modules)
"""


def test_a_machine_without_a_compiler_runs_the_binary(saved, tmp_path):
    folder, _, losses = saved
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "ONEFLOW_GRAPH_BACKEND")} | {
        "PATH": str(tmp_path)
    }
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.stdout.split() == [str(losses[0]), "False"], run.stderr
