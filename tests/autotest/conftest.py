import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def no_example_database(monkeypatch):
    """Failing examples of planted bugs are not kept, and the cases are the same every time."""
    monkeypatch.setenv("ONEFLOW_TEST_DATABASE", "none")
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "20")
    monkeypatch.setenv("ONEFLOW_TEST_FAILURES", "none")
