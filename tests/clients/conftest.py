"""Graphs of client programs use the aten backend by default, because it starts immediately and gives the
reference values.
"""

import pytest


@pytest.fixture(autouse=True)
def on_the_reference_backend(monkeypatch):
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "aten")
