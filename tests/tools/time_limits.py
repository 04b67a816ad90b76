"""Time limits of tests that start other processes."""

import os

# A busy machine needs longer: ONEFLOW_TEST_TIME_SCALE=4 multiplies every limit by 4.
SCALE = float(os.environ.get("ONEFLOW_TEST_TIME_SCALE", "1"))


def seconds(limit: float) -> float:
    """Return the time limit in seconds, scaled by ONEFLOW_TEST_TIME_SCALE."""
    return limit * SCALE
