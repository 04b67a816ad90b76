"""Graphs of client programs run on the aten backend unless they choose one: instant start, the reference numbers."""

import pytest


@pytest.fixture(autouse=True)
def on_the_reference_backend(monkeypatch):
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "aten")
