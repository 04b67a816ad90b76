"""Settings of all tests."""

import os
import shutil

# Tests look at what the compiler does, so no compiled program comes from an earlier run.
os.environ.setdefault("ONEFLOW_CACHE_SIZE", "0")

import pytest
from process_state import read_state, restore_state, seed_generators


def pytest_collectstart():
    """Tensors that a test module samples while it is imported do not depend on the modules before it."""
    seed_generators()


def has_compiler():
    """Whether the tests have a C++ compiler: that of CXX, or else g++ or c++."""
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "c++"]
    return any(shutil.which(name) for name in names)


def pytest_runtest_setup(item):
    if item.get_closest_marker("compiler") is not None and not has_compiler():
        pytest.skip("needs a C++ compiler")


@pytest.fixture(autouse=True)
def unchanged_process():
    """Fail a test that leaves process-wide state changed, and restore it for the tests after it."""
    seed_generators()
    earlier = read_state()
    yield
    changes = restore_state(earlier)
    assert not changes, "the test left process-wide state changed:\n" + "\n".join(changes)
