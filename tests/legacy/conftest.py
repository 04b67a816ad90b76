"""Job functions under test run on the reference backend, each test in a fresh session."""

import pytest
import torch

import oneflow.compatible.single_client as flow


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch):
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "aten")
    flow.clear_default_session()
    torch.manual_seed(0)
    yield
    flow.clear_default_session()
