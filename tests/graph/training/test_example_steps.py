"""The training scripts of docs/examples/steps give the same bits in eager mode and with compiled steps."""

import importlib.util
from pathlib import Path

import pytest
import torch

import oneflow as flow

SCRIPTS = Path(__file__).resolve().parents[3] / "docs" / "examples" / "steps"

# script -> whether all its calls run in programs; the others run some calls in eager mode, or all of them
ALL_IN_PROGRAMS = {
    "gan": True,
    "dqn": True,
    "ppo": True,
    "ddpm": True,
    "vae": True,
    "moco": False,  # the step reads a position in the queue from a tensor
    "mixup": True,  # its first line, which samples from NumPy's generator, runs in Python
    "metrics": True,
    "early_stopping": True,  # its last lines, which branch on the validation loss, run in Python
    "lbfgs": False,  # step() has a closure
    "grad_scaler": True,
    "accumulation": True,
}
SLOW = {"moco"}  # its step is captured at each call, for a new position


def load(name):
    spec = importlib.util.spec_from_file_location(f"step_example_{name}", SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_has_every_script():
    assert sorted(ALL_IN_PROGRAMS) == sorted(path.stem for path in SCRIPTS.glob("*.py"))


@pytest.mark.eager_calls
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ALL_IN_PROGRAMS],
)
def test_a_script_with_a_compiled_step_is_bit_for_bit_eager(name):
    script, graphs = load(name), []

    def compile_step(step):
        compiled = flow.compile_step(step, backend="aten")
        graphs.append(compiled.graph)
        return compiled

    expected_losses, expected_tensors = script.main(compile_step=lambda step: step, steps=50)
    losses, tensors = script.main(compile_step=compile_step, steps=50)
    assert losses == expected_losses
    assert len(tensors) == len(expected_tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, expected_tensors))
    (graph,) = graphs
    assert graph._engine.eager_calls.has_begun is not ALL_IN_PROGRAMS[name]
