"""The programs of docs/examples/legacy train."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples" / "legacy"


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("ONEFLOW_LEGACY_CPU", "1")
    yield
    for name in ("digits", "lenet", "mlp"):
        sys.modules.pop(name, None)


def main(name, *args, **kwargs):
    return runpy.run_path(str(FOLDER / f"{name}.py"))["main"](*args, **kwargs)


def falls(losses):
    n = max(1, len(losses) // 10)
    return np.mean(losses[-n:]) < 0.5 * np.mean(losses[:n])


def test_mlp():
    losses, accuracy = main("mlp", epochs=6)
    assert falls(losses) and accuracy > 0.95


def test_conv_bn():
    losses, accuracy = main("conv_bn")
    assert falls(losses) and accuracy > 0.95


def test_callback():
    losses, accuracy = main("callback")
    assert falls(losses) and accuracy > 0.95 and len(losses) == 150


def test_train_and_eval():
    losses, accuracy, norms = main("train_and_eval", steps=200)
    assert falls(losses) and accuracy > 0.95 and norms == [50.0] * 200


def test_wide_and_deep():
    losses, auc = main("wide_and_deep", steps=200)
    assert falls(losses) and auc > 0.9


@pytest.mark.slow
def test_lenet(tmp_path):
    losses, accuracy, folder = main("lenet", str(tmp_path / "snapshot"))
    assert falls(losses) and accuracy > 0.95 and (tmp_path / "snapshot" / "conv1-weight" / "out").exists()


@pytest.mark.slow
def test_save_and_load():
    trained, loaded, error = main("save_and_load")
    assert loaded > 0.9 and abs(trained - loaded) < 0.05 and error < 1e-6
