"""pytest in a process of its own, with AutoTest's plugin and without the settings of the process that runs
it.
"""

import os
import subprocess
import sys

from time_limits import seconds


def run_pytest(folder, *arguments, **variables):
    """Run pytest in a folder; return the completed process with its texts."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ONEFLOW_TEST") and k != "PYTEST_ADDOPTS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "oneflow_autotest.pytest_plugin", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds(300),
        env=env | {"ONEFLOW_TEST_DATABASE": "none", **variables},
    )
