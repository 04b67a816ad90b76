"""Job functions under test run on the reference backend, each test in a fresh session."""

import io

import numpy as np
import pytest
import torch

import oneflow.compatible.single_client as flow
from oneflow._data.records import RecordWriter


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "aten")
    flow.clear_default_session()
    torch.manual_seed(0)
    yield
    flow.clear_default_session()


@pytest.fixture
def dataset(tmp_path):
    """Eight records: a float vector, a label, a PNG of its own size. Returns (folder, values)."""
    Image = pytest.importorskip("PIL.Image")
    kept, rng = [], np.random.default_rng(6)
    with RecordWriter(tmp_path / "part-0") as out:
        for i in range(8):
            pixels = rng.integers(0, 256, (10 + i, 12, 3)).astype(np.uint8)
            data = io.BytesIO()
            Image.fromarray(pixels).save(data, "PNG")
            vector = rng.normal(size=4).astype(np.float32)
            out.write({"x": vector, "label": np.array([i], np.int32), "encoded": data.getvalue()})
            kept.append((vector, i, pixels))
    return str(tmp_path), kept
