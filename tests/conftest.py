"""Settings of all tests."""

import os

# Tests look at what the compiler does, so no compiled program comes from an earlier run.
os.environ.setdefault("ONEFLOW_CACHE_SIZE", "0")
